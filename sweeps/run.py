"""One run, from the configuration in its folder: train, evaluate, record. `creditbench train`, the quick start and
every scheduler end here."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from algorithms import COMMON_OPTIONS
from algorithms.evaluation import success_rates
from algorithms.objectives import objective
from algorithms.trainer import AgentTrainer, CreditAssignment, Recorder, checkpoints
from algorithms.trl_settings import grpo_config
from benchmarks.base import Benchmark
from sweeps import preflight, stop
from sweeps.evaluations import evaluate_lists, is_baseline, steps_of_update
from sweeps.files import StoreError
from sweeps.launch import OUTPUT
from sweeps.processes import Processes
from sweeps.session import Session, check_memory, open_session, prepare
from sweeps.stop import StopRequested
from sweeps.store import Attempt, RunFolder, adopt_output

__all__ = ["main", "prepare", "run_cell"]


def run_cell(folder: Path) -> None:
    """Run or resume the run in `folder`, to its result. A failure is recorded in the folder and raised.

    SIGTERM and Ctrl-C end it at once; the next call goes on from the newest checkpoint, and rows of updates after it
    are replaced. Where the process listens for requests to stop (`stop.listen`) one ends it after a checkpoint, with
    StopRequested.

    A launcher starts it in several processes: all train, rank 0 alone writes to the folder.
    """
    run = RunFolder.open(folder)
    processes = Processes(run.config())
    if processes.rank:
        _run(run, None, processes)
        return
    with run.start_attempt() as attempt, _terminate_like_interrupt():
        try:
            _run(run, attempt, processes)
        except Exception as error:
            run.write_error(error, _last_update(run))
            raise


@contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    if signal.getsignal(signal.SIGTERM) == stop.note:
        yield
        return
    try:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # not the main thread: the caller has the signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _last_update(run: RunFolder) -> int | None:
    rows = run.metrics()
    return rows[-1]["update"] if rows else None


def _run(run: RunFolder, attempt: Attempt | None, processes: Processes) -> None:
    config = run.config()
    preflight.check(config)
    check_memory(config, processes)
    with processes.first():
        initial = prepare(config, run.path.parent.parent)
    started = time.time()
    with open_session(run, initial, initial, processes) as session:
        if processes.rank == 0:
            _check_world(run, session.benchmark)
        trains = config["algorithm"]["objective"] is not None and config["protocol"]["updates"] > 0
        if trains:
            _train(session, attempt, initial)
        evaluate_lists(session, "after" if trains or is_baseline(config) else "before")
        data = session.benchmark.record()
    if attempt is not None:
        attempt.close()
        run.write_result({"seconds": time.time() - started, "success": _final_success(run), "data": data})


def _check_world(run: RunFolder, benchmark: Benchmark) -> None:
    """A run goes on with the passages that it began with: StoreError when a search engine now answers from others."""
    fingerprint = getattr(benchmark, "fingerprint", None)
    if fingerprint is None:
        return
    began = run.world(fingerprint)
    if began != fingerprint:
        raise StoreError(
            f"run {run.id} began with passages of fingerprint {began}, now they have {fingerprint}; serve the same "
            f"again, or delete {run.path} to begin anew"
        )


def _final_success(run: RunFolder) -> dict[str, dict[str, float]]:
    return {name: success_rates(rows) for name, (_, rows) in run.evaluations().items()}


# --- training ---------------------------------------------------------------------------------------------------------


def _train(session: Session, attempt: Attempt | None, initial: Path) -> None:
    config, run = session.config, session.run
    protocol, resources = config["protocol"], config["resources"]
    train = protocol["train"]
    tasks = session.benchmark.task_set(train["split"], train["count"], train["offset"])
    goal = objective(config["algorithm"]["objective"])
    world = session.processes.world
    args = grpo_config(protocol, resources, goal, seed=config["seed"], folder=run.checkpoints, world=world)
    saving = _Checkpoints(session)
    trainer = AgentTrainer(
        collector=session.collector,
        tasks=tasks,
        credit=_credit(config),
        recorder=_recorder(session, attempt) if attempt is not None else Recorder(lambda row: None),
        args=args,
        rows_per_microbatch=resources["rows_per_microbatch"],
        callbacks=[saving, _EvaluateDuring(session)],
        engine_options=resources["generation"]["options"],
        lora=config["model"].get("lora"),
    )
    session.trainer = trainer
    trainer.keep_checkpoints = resources["keep_checkpoints"]
    whole = checkpoints(run.checkpoints)
    trainer.train(resume_from_checkpoint=str(whole[-1]) if whole else None)
    if saving.stopped:
        raise StopRequested(f"stopped on request after update {trainer.state.global_step // saving.window}")


def _credit(config: Mapping[str, Any]) -> CreditAssignment:
    """The algorithm's own options and what the protocol sets for all of them alike."""
    algorithm, protocol = config["algorithm"], config["protocol"]
    shared = {name: protocol[name] for name in COMMON_OPTIONS}
    return CreditAssignment(algorithm["name"], {**algorithm["options"], **shared}, protocol["invalid_counts"])


def _recorder(session: Session, attempt: Attempt) -> Recorder:
    """Metrics rows get `time` (Unix) and `wall`, seconds of training up to the update, over all attempts."""
    past, started = {row["update"]: row.get("wall", 0.0) for row in session.run.metrics()}, time.time()
    offset: list[float] = []

    def log(row: dict[str, Any]) -> None:
        if not offset:  # seconds that earlier attempts spent up to the update this one started from
            offset.append(past.get(row["update"] - 1, 0.0))
        now = time.time()
        attempt.log({**row, "wall": offset[0] + now - started, "time": now})
        of = session.config["protocol"]["updates"]
        print(f"update {row['update']}/{of}: success {row['success']:.2f}, {row['turns']:.1f} turns", flush=True)

    keep = session.config["resources"]["save_rollouts"]
    return Recorder(log, attempt.rollouts if keep else None, with_text=keep == "text")


class _Checkpoints(TrainerCallback):
    """Between those of the protocol: a checkpoint every `resources.checkpoint_minutes`, and one on a request to
    stop."""

    def __init__(self, session: Session):
        self.processes, self.window = session.processes, steps_of_update(session.config)
        self.period = 60.0 * session.config["resources"]["checkpoint_minutes"]
        self.stopped = False
        self._saved = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.window:
            return
        if self.processes.any(stop.requested()):
            control.should_save = control.should_training_stop = self.stopped = True
        elif self.processes.any(time.monotonic() - self._saved > self.period):
            control.should_save = True

    def on_save(self, *_: Any, **__: Any) -> None:
        self._saved = time.monotonic()


class _EvaluateDuring(TrainerCallback):
    """Evaluates every `protocol.evaluation.every` updates; the end is evaluated after training. An update that a
    request to stop came in with is evaluated when the run goes on."""

    def __init__(self, session: Session):
        self.session = session
        self.window = steps_of_update(session.config)
        self.every = session.config["protocol"]["evaluation"]["every"]

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        update = state.global_step // self.window
        if update and not set(self._names(update)) <= set(self.session.run.evaluations()):
            self._evaluate(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not control.should_training_stop:
            self._evaluate(state)

    def _evaluate(self, state: Any) -> None:
        update, rest = divmod(state.global_step, self.window)
        if self.every and not rest and update % self.every == 0 and state.global_step < state.max_steps:
            evaluate_lists(self.session, f"update-{update:06d}")

    def _names(self, update: int) -> list[str]:
        return [f"{name}/update-{update:06d}" for name in self.session.config["protocol"]["evaluation"]["lists"]]


def main(arguments: Sequence[str]) -> int:
    """`python -m sweeps.run FOLDER`, as a scheduler's job starts it: 0, 1 after a failure, `stop.REQUEUE` on
    request."""
    stop.listen()
    output = os.environ.get(OUTPUT)
    if output and int(os.environ.get("RANK", "0")) == 0:
        adopt_output(Path(output))
    try:
        run_cell(Path(arguments[0]))
    except StopRequested as request:
        print(request, flush=True)
        return stop.REQUEUE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
