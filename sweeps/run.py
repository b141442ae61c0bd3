"""One run, from the configuration in its folder: train, evaluate, record. `creditbench train`, the quick start and
every scheduler end here."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.utils import logging as transformers_logging

import benchmarks
from algorithms import COMMON_OPTIONS, baselines, prompting
from algorithms.behavior_cloning import warm_start
from algorithms.collector import Collector
from algorithms.evaluation import evaluate, sampler, success_rates
from algorithms.generation import BatchEngine, Engine
from algorithms.objectives import objective
from algorithms.policy import Policy, hub_folder, load_policy, smollm2_folder
from algorithms.trainer import AgentTrainer, CreditAssignment, Recorder, checkpoints
from algorithms.trl_settings import grpo_config
from algorithms.vllm_engine import VllmHost, host
from benchmarks.base import Benchmark, EnvironmentPool, TaskSet
from sweeps import memory, preflight, stop
from sweeps.files import StoreError
from sweeps.launch import OUTPUT
from sweeps.processes import Processes
from sweeps.schema import ConfigError
from sweeps.stop import StopRequested
from sweeps.store import Attempt, RunFolder, adopt_output

transformers_logging.disable_progress_bar()
warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.")  # about its own internals


def prepare(config: Mapping[str, Any], out: Path) -> Path:
    """The folder (or hub name, as a path) of the run's initial weights; a warm start is made once and cached below
    `out`/cache. Safe to call again, and from several processes."""
    _check_device(config["resources"]["device"])
    model, cache = config["model"], Path(out) / "cache"
    if model["kind"] == "hub":
        return hub_folder(model["path"], model["revision"])
    if model["kind"] == "smollm2":
        return smollm2_folder(cache)
    _use_threads(config)
    options = config["benchmark"]["options"]
    return warm_start(model, _benchmark(config), options, cache, _print_progress, _plain_benchmark(config))


def _check_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("resources.device=cuda, but PyTorch sees no CUDA device here; use auto or cpu")


def _check_memory(config: Mapping[str, Any], processes: Processes) -> None:
    """ConfigError for a model that the GPU of this process cannot hold, before it is loaded."""
    if config["resources"]["device"] == "cpu" or not torch.cuda.is_available():
        return
    size = torch.cuda.get_device_properties(processes.device).total_memory / memory.GIB
    memory.check(config, memory.Layout(processes.world, processes.launch), size)


def _print_progress(stage: str, done: int, of: int) -> None:
    if done == of or done % max(1, of // 10) == 0:
        print(f"{stage}: {done}/{of}", flush=True)


def _benchmark(config: Mapping[str, Any]) -> Benchmark:
    return prompting.dressed(_plain_benchmark(config)(), config)


def _plain_benchmark(config: Mapping[str, Any]) -> Callable[[], Benchmark]:
    """What loads a run's benchmark, here or in another process."""
    section, options = config["benchmark"], prompting.benchmark_options(config)
    return functools.partial(benchmarks.load, section["name"], success_reward=section["success_reward"], **options)


def _use_threads(config: Mapping[str, Any]) -> None:
    torch.set_num_threads(config["resources"]["threads"])


@dataclass
class _Session:
    """What training and evaluation of one run share."""

    run: RunFolder
    config: Mapping[str, Any]
    benchmark: Benchmark
    policy: Policy
    collector: Collector
    processes: Processes
    trainer: AgentTrainer | None = None
    _host: VllmHost | None = None

    @property
    def slots(self) -> int:
        return _slots(self.config, self.processes)

    @contextmanager
    def engine(self, temperature: float) -> Iterator[Engine]:
        """What generates replies in an evaluation; vLLM is started once, by the trainer if there is one."""
        protocol, resources = self.config["protocol"], self.config["resources"]
        most = protocol["max_response_tokens"]
        if resources["generation"]["engine"] == "transformers":
            rows = resources["rows_per_microbatch"]
            yield BatchEngine(sampler(self.policy, temperature=temperature, max_new_tokens=most, rows_per_call=rows))
        elif self.trainer is not None:
            with self.trainer.generation(temperature) as engine:
                yield engine
        else:
            if self._host is None:
                length, ends = protocol["max_prompt_tokens"] + most, self.policy.ends
                self._host = host(self.policy, resources["generation"], length=length, slots=self.slots, ends=ends)
            with self._host.engine(version=0, temperature=temperature, max_tokens=most) as engine:
                yield engine


def _slots(config: Mapping[str, Any], processes: Processes) -> int:
    """Episodes that one process plays at a time."""
    protocol = config["protocol"]
    return -(-protocol["group_size"] * protocol["tasks_per_update"] // processes.world)


@contextmanager
def _session(run: RunFolder, weights: Path, initial: Path, processes: Processes) -> Iterator[_Session]:
    config = run.config()
    _use_threads(config)
    benchmark, protocol = _benchmark(config), config["protocol"]
    most = protocol["max_prompt_tokens"]
    policy = load_policy(config["model"], benchmark, folder=weights, base=initial, max_prompt_tokens=most)
    if config["resources"]["device"] != "cpu" and torch.cuda.is_available():
        policy.model.to(processes.device)
    pool: EnvironmentPool = benchmark.pool(_slots(config, processes), config["resources"]["workers"])
    try:
        collector = Collector(
            benchmark,
            policy,
            pool,
            horizon=protocol["horizon"],
            state_key=protocol["state_key"],
            history=prompting.history_shown(config),
        )
        yield _Session(run, config, benchmark, policy, collector, processes)
    finally:
        pool.close()


# --- one run ----------------------------------------------------------------------------------------------------------


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
    _check_memory(config, processes)
    with processes.first():
        initial = prepare(config, run.path.parent.parent)
    started = time.time()
    with _session(run, initial, initial, processes) as session:
        if processes.rank == 0:
            _check_world(run, session.benchmark)
        trains = config["algorithm"]["objective"] is not None and config["protocol"]["updates"] > 0
        if trains:
            _train(session, attempt, initial)
        _evaluate(session, "after" if trains or _is_baseline(config) else "before")
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


def _is_baseline(config: Mapping[str, Any]) -> bool:
    """Whether the run's method is done once it is evaluated: what it scores is no start that training goes on from."""
    return config["algorithm"]["name"] in baselines.METHODS


def _final_success(run: RunFolder) -> dict[str, dict[str, float]]:
    return {name: success_rates(rows) for name, (_, rows) in run.evaluations().items()}


# --- training ---------------------------------------------------------------------------------------------------------


def _train(session: _Session, attempt: Attempt | None, initial: Path) -> None:
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


def _recorder(session: _Session, attempt: Attempt) -> Recorder:
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


def _window(config: Mapping[str, Any]) -> int:
    """Optimizer steps of one update."""
    return config["protocol"]["minibatches"] * config["protocol"]["epochs"]


class _Checkpoints(TrainerCallback):
    """Between those of the protocol: a checkpoint every `resources.checkpoint_minutes`, and one on a request to
    stop."""

    def __init__(self, session: _Session):
        self.processes, self.window = session.processes, _window(session.config)
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

    def __init__(self, session: _Session):
        self.session = session
        self.window = _window(session.config)
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
            _evaluate(self.session, f"update-{update:06d}")

    def _names(self, update: int) -> list[str]:
        return [f"{name}/update-{update:06d}" for name in self.session.config["protocol"]["evaluation"]["lists"]]


# --- evaluation -------------------------------------------------------------------------------------------------------


def _evaluate(session: _Session, when: str, lists: Sequence[str] | None = None) -> None:
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


def _announce(session: _Session, what: str) -> Callable[[int, int], None]:
    def show(done: int, of: int) -> None:
        if session.processes.rank == 0:
            print(f"{what}: {done}/{of} episodes", flush=True)
        if session.processes.world == 1 and stop.requested():
            raise StopRequested(f"stopped on request while {what}")

    return show


def _header(session: _Session, name: str, when: str, chosen: Mapping[str, Any], tasks: TaskSet) -> dict[str, Any]:
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
    window = config["protocol"]["minibatches"] * config["protocol"]["epochs"]
    initial = prepare(config, run.path.parent.parent)
    weights, when = _weights(run, checkpoint, window, initial)
    if (weights / "trainer_state.json").exists():
        steps = json.loads((weights / "trainer_state.json").read_text())["global_step"]
        when = "after" if steps == config["protocol"]["updates"] * window else f"update-{steps // window:06d}"
    processes = Processes(config)
    _check_memory({**config, "algorithm": {**config["algorithm"], "objective": None}}, processes)  # trains nothing
    with _session(run, weights, initial, processes) as session:
        _evaluate(session, when, lists)


def _weights(run: RunFolder, checkpoint: str, window: int, initial: Path) -> tuple[Path, str]:
    whole = {int(p.name.rpartition("-")[2]) // window: p for p in checkpoints(run.checkpoints)}
    if run.config()["algorithm"]["objective"] is None:
        if checkpoint != "last":
            raise StoreError(f"run {run.id} trains nothing; it has no checkpoint {checkpoint}")
        return initial, "after" if _is_baseline(run.config()) else "before"
    if not whole:
        raise StoreError(f"run {run.id} has no checkpoint yet; train it first (state: {run.state()})")
    if checkpoint == "last":
        return whole[max(whole)], "after"
    if int(checkpoint) not in whole:
        kept = ", ".join(map(str, sorted(whole)))
        raise StoreError(f"run {run.id} keeps no checkpoint of update {checkpoint} (kept: {kept})")
    return whole[int(checkpoint)], "after"


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
