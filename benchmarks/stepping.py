"""Environments stepped one by one, as their actions come, over any pool.

`stepper(pool)` picks the way: worker processes step while the caller goes on (`pool.send`, `pool.ready`), a pool that
waits for others (`pool.remote`, a search server) is stepped in a thread, any other at once in this one.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from benchmarks.base import EnvironmentPool, StepResult


class Stepper(Protocol):
    """Actions go in, results come out, in any order; a slot has one action under way at most."""

    def send(self, slot: int, action: str) -> None:
        """Start a step."""
        ...

    def ready(self, wait: bool) -> list[tuple[int, StepResult]]:
        """The (slot, result) pairs that are there; with `wait` at least one, if any step is under way."""
        ...

    def close(self) -> None:
        """Wait for what is under way and drop it."""
        ...


class BatchStepper:
    """Steps everything that was sent in one call, when asked for results; they come in the order of sending."""

    def __init__(self, pool: EnvironmentPool):
        self._pool = pool
        self._actions: list[tuple[int, str]] = []

    def send(self, slot: int, action: str) -> None:
        """Queue a step."""
        self._actions.append((slot, action))

    def ready(self, wait: bool) -> list[tuple[int, StepResult]]:
        """All results."""
        actions, self._actions = self._actions, []
        if not actions:
            return []
        return [(slot, result) for (slot, _), result in zip(actions, self._pool.step(actions), strict=True)]

    def close(self) -> None:
        """Drop what was not stepped."""
        self._actions.clear()


class ThreadStepper:
    """Steps in one thread, what comes meanwhile as the next batch."""

    def __init__(self, pool: EnvironmentPool):
        self._pool = pool
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._actions: list[tuple[int, str]] = []
        self._batch: list[int] = []
        self._future: Future[list[StepResult]] | None = None

    def send(self, slot: int, action: str) -> None:
        """Queue a step, and start it if none is under way."""
        self._actions.append((slot, action))
        self._start()

    def _start(self) -> None:
        if self._future is None and self._actions:
            actions, self._actions = self._actions, []
            self._batch = [slot for slot, _ in actions]
            self._future = self._thread.submit(self._pool.step, actions)

    def ready(self, wait: bool) -> list[tuple[int, StepResult]]:
        """The results of the batch under way, if it is done or `wait`; the next one is started."""
        if self._future is None or not (wait or self._future.done()):
            return []
        future, self._future = self._future, None
        results = list(zip(self._batch, future.result(), strict=True))
        self._start()
        return results

    def close(self) -> None:
        """Wait for the batch under way."""
        self._actions.clear()
        self._thread.shutdown(wait=True)


class WorkerStepper:
    """A pool of worker processes that takes single steps (`send`, `ready`)."""

    def __init__(self, pool: StreamingPool):
        self._pool = pool

    def send(self, slot: int, action: str) -> None:
        """Start a step in the slot's worker."""
        self._pool.send(slot, action)

    def ready(self, wait: bool) -> list[tuple[int, StepResult]]:
        """What the workers have answered."""
        return self._pool.ready(wait)

    def close(self) -> None:
        """Take in the answers under way."""
        while self._pool.ready(True):
            pass


class StreamingPool(EnvironmentPool, Protocol):
    """An `EnvironmentPool` whose slots can also be stepped one by one."""

    def send(self, slot: int, action: str) -> None: ...

    def ready(self, wait_for_one: bool) -> list[tuple[int, StepResult]]: ...


def stepper(pool: EnvironmentPool) -> Stepper:
    """The way to step this pool one by one."""
    if hasattr(pool, "send"):
        return WorkerStepper(pool)  # type: ignore[arg-type]
    return ThreadStepper(pool) if getattr(pool, "remote", False) else BatchStepper(pool)
