"""Episodes spread over worker processes. The engine survives no threads, so this is the way to use several cores."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from benchmarks.alfworld.episode import Episode
from benchmarks.alfworld.options import Options
from benchmarks.alfworld.pool import check_actions, check_fit, check_slots
from benchmarks.alfworld.source import Player
from benchmarks.base import Observation, StepResult, Task

_PATIENCE = 10  # seconds a worker may take to end


class WorkerPool:
    """Slots in `workers` spawned processes; an `EnvironmentPool` with the results of a `LocalPool`.

    Episodes of one task go to one worker where they fit, so that they share its transition memo. Any failure (a
    worker's error or death, an interrupt) closes the pool; a RuntimeError names the worker, the tasks and the cause.
    As with all spawned processes, a script has to guard its entry with `if __name__ == "__main__":`.

    Temporary disk: `engines` planner libraries of 1.1 MB per worker, held until it ends.
    """

    def __init__(self, options: Options, slots: int, workers: int) -> None:
        check_slots(slots)
        if workers < 1:
            raise ValueError(f"an ALFWorld pool needs 0 workers or more, got {workers}")
        self.slots = slots
        self._home: dict[str, int] = {}  # task id -> the worker that knows its game
        self._place: dict[int, int] = {}  # slot -> worker
        self._tasks: dict[int, str] = {}  # slot -> task id
        self._sent: dict[int, list[int]] = defaultdict(list)  # worker -> slots whose single steps are under way
        context = multiprocessing.get_context("spawn")
        self._workers = [_Worker(context, index, options) for index in range(min(workers, slots))]

    def reset(self, tasks: Sequence[Task]) -> list[Observation]:
        """Start `tasks[i]` in slot i; slots beyond them are emptied."""
        self._check_open()
        check_fit(len(tasks), self.slots)
        self._place = place([task.id for task in tasks], len(self._workers), self._home)
        self._tasks = {slot: task.id for slot, task in enumerate(tasks)}
        orders: dict[int, list[tuple[int, Any]]] = {index: [] for index in range(len(self._workers))}
        for slot, task in enumerate(tasks):
            self._home[task.id] = self._place[slot]
            orders[self._place[slot]].append((slot, task))
        answers = self._ask("reset", orders)
        return [answers[slot] for slot in range(len(tasks))]

    def step(self, actions: Sequence[tuple[int, str]]) -> list[StepResult]:
        """Send (slot, action) pairs; results come in the same order."""
        self._check_open()
        check_actions(actions, set(self._tasks))
        orders: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        for slot, action in actions:
            orders[self._place[slot]].append((slot, action))
        answers = self._ask("step", orders)
        return [answers[slot] for slot, _ in actions]

    def send(self, slot: int, action: str) -> None:
        """Start one step; `ready` has its result. A slot has one step under way at most."""
        self._check_open()
        check_actions([(slot, action)], set(self._tasks))
        place = self._place[slot]
        if slot in self._sent[place]:
            raise ValueError(f"slot {slot} has a step under way; take in its result with ready() first")
        with self._closed_on_failure():
            self._workers[place].send("step", [(slot, action)], [self._tasks[slot]])
        self._sent[place].append(slot)

    def ready(self, wait_for_one: bool) -> list[tuple[int, StepResult]]:
        """Results of steps that `send` started; with `wait_for_one` at least one, if any is under way."""
        pipes = {self._workers[place].pipe: place for place, slots in self._sent.items() if slots}
        results: list[tuple[int, StepResult]] = []
        with self._closed_on_failure():
            answered = wait(list(pipes), timeout=None if wait_for_one else 0) if pipes else []
            for place in [place for pipe, place in pipes.items() if pipe in answered]:
                while self._sent[place] and self._workers[place].pipe.poll():
                    names = sorted({self._tasks[slot] for slot in self._sent[place]})
                    answers = self._workers[place].receive(names)
                    results += answers.items()
                    for slot in answers:
                        self._sent[place].remove(slot)
        return results

    def close(self) -> None:
        """End the workers. Safe to call again."""
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.join()
        self._workers = []
        self._sent.clear()

    def _check_open(self) -> None:
        if not self._workers:
            raise RuntimeError("this ALFWorld pool is closed; make a new one")

    def _ask(self, verb: str, orders: dict[int, list[tuple[int, Any]]]) -> dict[int, Any]:
        """Give each worker its orders, then gather the answers by slot."""
        if any(self._sent.values()):
            raise RuntimeError("single steps are under way; take in their results with ready() first")
        with self._closed_on_failure():
            for index, entries in orders.items():
                self._workers[index].send(verb, entries, self._named(entries))
            answers: dict[int, Any] = {}
            for index, entries in orders.items():
                answers.update(self._workers[index].receive(self._named(entries)))
            return answers

    @contextlib.contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # an interrupt too: answers may still be under way
            for worker in self._workers:
                worker.process.terminate()
            self.close()
            raise

    def _named(self, entries: Iterable[tuple[int, Any]]) -> list[str]:
        return sorted({self._tasks[slot] for slot, _ in entries})


def place(ids: Sequence[str], workers: int, home: dict[str, int]) -> dict[int, int]:
    """Worker of each slot: equal loads; one task on one worker where it fits, on its `home` if it has one."""
    room = [-(-len(ids) // workers)] * workers
    slots_of: dict[str, list[int]] = defaultdict(list)
    for slot, name in enumerate(ids):
        slots_of[name].append(slot)
    placed: dict[int, int] = {}
    for name, slots in slots_of.items():
        worker = home.get(name, -1)
        if worker < 0 or worker >= workers or room[worker] < len(slots):
            worker = max(range(workers), key=lambda index: room[index])
        for slot in slots:
            if not room[worker]:
                worker = max(range(workers), key=lambda index: room[index])
            placed[slot] = worker
            room[worker] -= 1
    return placed


class _Worker:
    """The parent's end of one process."""

    def __init__(self, context: Any, index: int, options: Options) -> None:
        self.index = index
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_serve, args=(theirs, options), name=f"alfworld-{index}", daemon=True
        )
        self.process.start()
        theirs.close()  # so that the worker's death reads as the end of the pipe

    def send(self, verb: str, entries: list[tuple[int, Any]], tasks: list[str]) -> None:
        try:
            self.pipe.send((verb, entries))
        except OSError as error:
            raise self._death(tasks) from error

    def receive(self, tasks: list[str]) -> dict[int, Any]:
        try:
            failed, answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._death(tasks) from error
        if failed:
            task, trace = answer
            raise RuntimeError(f"ALFWorld worker {self.index} failed on task {task!r}:\n{trace}")
        answers: dict[int, Any] = answer
        return answers

    def dismiss(self) -> None:
        with contextlib.suppress(OSError):
            self.pipe.send(("close", []))
            self.pipe.close()

    def join(self) -> None:
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _death(self, tasks: list[str]) -> RuntimeError:
        self.process.join(_PATIENCE)
        return RuntimeError(
            f"ALFWorld worker {self.index} (process {self.process.pid}) ended with exit code {self.process.exitcode} "
            f"while it played {', '.join(tasks)}; a negative code is a signal, -9 often means too little memory"
        )


def _serve(pipe: Connection, options: Options) -> None:
    """A worker's life: answer orders until told to stop, or until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides
    player = Player(options)
    episodes: dict[int, Episode] = {}
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            verb, entries = pipe.recv()
            if verb == "close":
                return
            if verb == "reset":
                episodes.clear()
            pipe.send(_answer(player, episodes, verb, entries))


def _answer(
    player: Player, episodes: dict[int, Episode], verb: str, entries: list[tuple[int, Any]]
) -> tuple[bool, Any]:
    """(False, answers by slot), or (True, (task id, traceback)) of the first failure."""
    answers: dict[int, Any] = {}
    for slot, order in entries:
        try:
            if verb == "reset":
                episodes[slot] = player.episode(order, slot)
                answers[slot] = episodes[slot].observation()
            else:
                answers[slot] = episodes[slot].step(order)
        except Exception:  # whatever it is, the parent has to hear of it
            name = order.id if isinstance(order, Task) else episodes[slot].task_id
            return True, (name, traceback.format_exc())
    return False, answers
