"""A pool of processes on this machine: every job gets a fresh process, so that caches start equally cold for all.

Processes come from multiprocessing's fork server, which imports the heavy modules once. Output goes to a log; one
job's end, however violent, leaves the others alone; an interrupt reaches every job once and is waited for.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess, parent_process
from pathlib import Path
from typing import Any, Protocol

from sweeps import store

INTERRUPTED = 130
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A call of `target` ("package.module:function") with `args` in a process of its own.

    `devices` is the number of GPUs it needs for itself. Output goes to `log`. Where the job starts an attempt at the
    run in `run`, the log becomes the attempt's out.log, and an exception that left no error.json there is recorded in
    it.
    """

    label: str
    target: str
    args: tuple[Any, ...]
    log: Path
    run: Path | None = None
    devices: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a job ended: exit code 0 is success, 1 an exception, 130 an interrupt, -N a kill by signal N."""

    job: Job
    exit_code: int

    @property
    def log(self) -> Path:
        """Where the job's output is."""
        attempts = store.RunFolder(self.job.run).attempts() if self.job.run else []
        moved = attempts[-1] / "out.log" if attempts else self.job.log
        return moved if moved.exists() and not self.job.log.exists() else self.job.log

    @property
    def reason(self) -> str:
        """One line on a failure; "" after success."""
        if self.exit_code in (0, INTERRUPTED):
            return "interrupted" if self.exit_code else ""
        if self.exit_code < 0:
            name = signal.Signals(-self.exit_code).name
            return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
        record = store.RunFolder(self.job.run).error() if self.job.run else None
        if record:
            return " ".join(f"{record['class']}: {record['message']}".split())
        return _last_line(self.log) or f"exit code {self.exit_code}"


class Watcher(Protocol):
    """What a pool tells while it works."""

    def started(self, job: Job) -> None: ...

    def tick(self, running: Sequence[Job]) -> None:
        """Called every `interval` seconds."""
        ...

    def ended(self, outcome: Outcome) -> None: ...

    def stopping(self, running: Sequence[Job]) -> None:
        """Called when an interrupt has arrived, before running jobs are waited for."""
        ...


class Silent:
    """A watcher that says nothing."""

    def started(self, job: Job) -> None:
        pass

    def tick(self, running: Sequence[Job]) -> None:
        pass

    def ended(self, outcome: Outcome) -> None:
        pass

    def stopping(self, running: Sequence[Job]) -> None:
        pass


def run_jobs(
    jobs: Sequence[Job],
    workers: int,
    *,
    preload: Sequence[str] = (),
    threads: int = 1,
    devices: Sequence[str] | None = None,
    watcher: Watcher | None = None,
    interval: float = 0.5,
    grace: float = 60.0,
) -> list[Outcome]:
    """Run jobs, at most `workers` at a time, in order; outcomes come in the order of `jobs`.

    Args:
      preload: modules that the fork server imports once, before it starts the first job.
      threads: CPU threads of one job, set in its environment before any library starts.
      devices: GPUs to hand out; each job sees its own alone, as CUDA_VISIBLE_DEVICES, and waits until enough are
        free. None leaves what jobs see to the environment.
      grace: seconds that jobs get to stop after an interrupt, before they are killed.

    KeyboardInterrupt is passed on to every running job as one SIGINT, and raised here once all have ended; a second
    one kills them. Jobs stop by themselves (as if interrupted) when this process dies.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    watcher = watcher or Silent()
    waiting = list(enumerate(jobs))
    running: dict[int, BaseProcess] = {}
    outcomes: dict[int, Outcome] = {}
    free = _Devices(devices, max((job.devices for job in jobs), default=0))
    with _threads_of_children(threads):
        try:
            while waiting or running:
                while waiting and len(running) < workers and free.enough(waiting[0][1].devices):
                    index, job = waiting.pop(0)
                    running[index] = _start(context, job, threads, free.take(index, job.devices))
                    watcher.started(job)
                wait([process.sentinel for process in running.values()], timeout=interval)
                watcher.tick([jobs[index] for index in running])
                for index in [index for index, process in running.items() if process.exitcode is not None]:
                    outcomes[index] = Outcome(jobs[index], running.pop(index).exitcode or 0)
                    free.give_back(index)
                    watcher.ended(outcomes[index])
        except BaseException:
            watcher.stopping([jobs[index] for index in running])
            _stop(list(running.values()), grace)
            raise
    return [outcomes[index] for index in range(len(jobs))]


class _Devices:
    """GPUs that are free, and which job has the others."""

    def __init__(self, names: Sequence[str] | None, most: int) -> None:
        if names is not None and most > len(names):
            raise store.StoreError(f"a job needs {most} GPUs and there are {len(names)} here")
        self._managed = names is not None
        self._free = list(names or ())
        self._taken: dict[int, list[str]] = {}

    def enough(self, count: int) -> bool:
        return not self._managed or count <= len(self._free)

    def take(self, job: int, count: int) -> str | None:
        """The job's CUDA_VISIBLE_DEVICES; None leaves it as it is."""
        if not self._managed:
            return None
        self._taken[job], self._free = self._free[:count], self._free[count:]
        return ",".join(self._taken[job])

    def give_back(self, job: int) -> None:
        self._free += self._taken.pop(job, [])


@contextlib.contextmanager
def terminate_like_interrupt() -> Iterator[None]:
    """SIGTERM stops this process the way Ctrl-C does, and so reaches every job."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _start(context: Any, job: Job, threads: int, visible: str | None) -> BaseProcess:
    process = context.Process(target=_work, args=(job, threads, visible), name=f"creditbench {job.label}")
    process.start()
    return process


def _stop(processes: Sequence[BaseProcess], grace: float) -> None:
    """Interrupt processes and wait; kill those that outlast `grace` seconds or a second interrupt."""
    try:
        for process in processes:
            _signal(process, signal.SIGINT)
        deadline = time.monotonic() + grace
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            if process.exitcode is None:
                _kill_group(process)
                process.join()


def _signal(process: BaseProcess, number: signal.Signals) -> None:
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _kill_group(process: BaseProcess) -> None:
    """Kill a job and its own worker processes."""
    assert process.pid is not None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # not yet the leader of its group
        _signal(process, signal.SIGKILL)


@contextlib.contextmanager
def _threads_of_children(threads: int) -> Iterator[None]:
    """Children inherit the environment; this process keeps its own."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(_thread_settings(threads))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _thread_settings(threads: int) -> dict[str, str]:
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))


# --- in the job's process ---------------------------------------------------------------------------------------------


def _work(job: Job, threads: int, visible: str | None) -> None:
    os.environ.update(_thread_settings(threads))  # the fork server may be older than this pool
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    os.setsid()  # the terminal's Ctrl-C reaches the pool only, which passes it on once
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _redirect_output(job.log)
    _stop_with_parent()
    try:
        if job.run is not None:
            store.adopt_output(job.log)
        module, _, function = job.target.partition(":")
        getattr(importlib.import_module(module), function)(*job.args)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        traceback.print_exc()
        _record(job, error)
        sys.exit(1)


def _redirect_output(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


def _stop_with_parent() -> None:
    """Interrupt this process when the pool's process dies."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def _record(job: Job, error: Exception) -> None:
    """Leave an error.json unless the job wrote one itself, or another process holds the run."""
    if job.run is None:
        return
    run = store.RunFolder(job.run)
    if run.state() not in ("failed", "done") and not _held_by_other(run):
        run.write_error(error, None)


def _held_by_other(run: store.RunFolder) -> bool:
    return run.state() == "running" and run.holder() != os.getpid()


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
