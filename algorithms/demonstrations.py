"""An expert's decisions on many tasks, played in several processes: most of the time goes into starting games."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.base import Benchmark, StepView, Task

Decision = tuple[StepView, str]  # what the expert saw, the action it took
Load = Callable[[], Benchmark]

_TASKS_PER_PROCESS = 250  # fewer do not pay for loading a benchmark once more
_PATIENCE = 10  # seconds a process may take to end


def processes_for(tasks: int) -> int:
    """How many processes play so many tasks: as many as there are cores, each with enough to do."""
    return max(1, min(len(os.sched_getaffinity(0)), tasks // _TASKS_PER_PROCESS))


def demonstrate(load: Load, tasks: Sequence[Task], runs: int, seed: int, processes: int) -> Iterator[list[Decision]]:
    """The decisions of each task, in the order of `tasks`: the same for any number of processes.

    `load` makes the benchmark, in each process its own; it has to be picklable. RuntimeError for a process that fails
    or dies; the others are ended then, and also when the caller goes away early.
    """
    context = multiprocessing.get_context("spawn")
    workers = [_Worker(context, load, tasks[i::processes], runs, seed) for i in range(min(processes, len(tasks)))]
    try:
        for index in range(len(tasks)):
            yield workers[index % len(workers)].receive()
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """The receiving end of one process, which plays its tasks one after another."""

    def __init__(self, context: Any, load: Load, tasks: Sequence[Task], runs: int, seed: int) -> None:
        self._pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_play, args=(theirs, load, list(tasks), runs, seed), daemon=True)
        self._process.start()
        theirs.close()  # so that the process's death reads as the end of the pipe

    def receive(self) -> list[Decision]:
        try:
            decisions, trace = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(_PATIENCE)
            raise RuntimeError(
                f"a process that played demonstrations ended with exit code {self._process.exitcode}; a negative code "
                "is a signal, -9 often means too little memory"
            ) from error
        if trace:
            raise RuntimeError(f"playing demonstrations failed:\n{trace}")
        result: list[Decision] = decisions
        return result

    def end(self) -> None:
        self._process.terminate()
        self._process.join(_PATIENCE)
        self._pipe.close()


def _play(pipe: Connection, load: Load, tasks: Sequence[Task], runs: int, seed: int) -> None:
    """Send (decisions, "") of each task, or (None, traceback) of what failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides
    try:
        benchmark = load()
        for task in tasks:
            pipe.send((list(benchmark.demonstrations([task], runs, seed)), ""))
    except (BrokenPipeError, ConnectionResetError):  # the parent is gone
        pass
    except Exception:  # whatever it is, the parent has to hear of it
        pipe.send((None, traceback.format_exc()))
