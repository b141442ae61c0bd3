"""Evaluation of one run: the protocol's lists played and recorded, during training, after it, or again later."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from algorithms import baselines
from algorithms.evaluation import evaluate
from algorithms.trainer import checkpoints
from benchmarks.base import TaskSet
from sweeps import stop
from sweeps.files import StoreError
from sweeps.processes import Processes
from sweeps.session import Session, check_memory, open_session, prepare
from sweeps.stop import StopRequested
from sweeps.store import RunFolder


def evaluate_lists(session: Session, when: str, lists: Sequence[str] | None = None) -> None:
    """Play the protocol's evaluation lists and record them as <list>/<when>."""
    settings = session.config["protocol"]["evaluation"]
    for name, chosen in settings["lists"].items():
        if lists is not None and name not in lists:
            continue
        if session.processes.any(stop.requested()):
            raise StopRequested(f"stopped on request before evaluating {name}")
        tasks = session.benchmark.task_set(chosen["split"], chosen["count"], chosen["offset"])
        with session.engine(settings["temperature"]) as engine:
            part = evaluate(
                session.collector,
                tasks,
                engine,
                repeats=chosen["repeats"],
                seed=settings["seed"] + session.config["seed"],
                slots=session.slots,
                progress=_announce(session, f"evaluating {name} ({when})"),
                share=(session.processes.rank, session.processes.world),
                any_active=_any_active(session.processes),
            )
        rows = session.processes.gather(part)
        if session.processes.rank == 0:
            session.run.write_evaluation(f"{name}/{when}", _header(session, name, when, chosen, tasks), rows)


def _any_active(processes: Processes) -> Callable[[int], bool]:
    return lambda count: processes.any(count > 0)


def _announce(session: Session, what: str) -> Callable[[int, int], None]:
    def show(done: int, of: int) -> None:
        if session.processes.rank == 0:
            print(f"{what}: {done}/{of} episodes", flush=True)
        if session.processes.world == 1 and stop.requested():
            raise StopRequested(f"stopped on request while {what}")

    return show


def _header(session: Session, name: str, when: str, chosen: Mapping[str, Any], tasks: TaskSet) -> dict[str, Any]:
    settings = session.config["protocol"]["evaluation"]
    return {
        "list": name,
        "when": when,
        "list_hash": tasks.hash,
        "split": chosen["split"],
        "count": len(tasks),
        "offset": chosen["offset"],
        "repeats": chosen["repeats"],
        "temperature": settings["temperature"],
        "seed": settings["seed"] + session.config["seed"],
        "decoding": session.policy.decoding,
        "label": session.benchmark.label,
        "horizon": session.config["protocol"]["horizon"],
    }


def evaluate_run(folder: Path, lists: Sequence[str] | None = None, checkpoint: str = "last") -> None:
    """Evaluate a checkpoint of a run again: "last", or the number of the update it was written after. The result is
    recorded as <list>/after (the final weights) or <list>/update-NNNNNN."""
    run = RunFolder.open(folder)
    config = run.config()
    window = steps_of_update(config)
    initial = prepare(config, run.path.parent.parent)
    weights, when = _weights(run, checkpoint, window, initial)
    if (weights / "trainer_state.json").exists():
        steps = json.loads((weights / "trainer_state.json").read_text())["global_step"]
        when = "after" if steps == config["protocol"]["updates"] * window else f"update-{steps // window:06d}"
    processes = Processes(config)
    check_memory({**config, "algorithm": {**config["algorithm"], "objective": None}}, processes)  # trains nothing
    with open_session(run, weights, initial, processes) as session:
        evaluate_lists(session, when, lists)


def _weights(run: RunFolder, checkpoint: str, window: int, initial: Path) -> tuple[Path, str]:
    whole = {int(p.name.rpartition("-")[2]) // window: p for p in checkpoints(run.checkpoints)}
    if run.config()["algorithm"]["objective"] is None:
        if checkpoint != "last":
            raise StoreError(f"run {run.id} trains nothing; it has no checkpoint {checkpoint}")
        return initial, "after" if is_baseline(run.config()) else "before"
    if not whole:
        raise StoreError(f"run {run.id} has no checkpoint yet; train it first (state: {run.state()})")
    if checkpoint == "last":
        return whole[max(whole)], "after"
    if int(checkpoint) not in whole:
        kept = ", ".join(map(str, sorted(whole)))
        raise StoreError(f"run {run.id} keeps no checkpoint of update {checkpoint} (kept: {kept})")
    return whole[int(checkpoint)], "after"


def is_baseline(config: Mapping[str, Any]) -> bool:
    """Whether the run's method is done once it is evaluated: what it scores is no start that training goes on from."""
    return config["algorithm"]["name"] in baselines.METHODS


def steps_of_update(config: Mapping[str, Any]) -> int:
    """Optimizer steps of one update."""
    return config["protocol"]["minibatches"] * config["protocol"]["epochs"]
