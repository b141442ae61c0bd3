"""A fixed number of episodes stepped together in this process: a step costs less than handing it to another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.base import Observation, StepResult, Task
from benchmarks.webshop.episode import Episode


class Pool:
    """Slots; an `EnvironmentPool`. `start` makes the episode of a task."""

    def __init__(self, start: Callable[[Task], Episode], slots: int) -> None:
        if slots < 1:
            raise ValueError(f"a WebShop pool needs 1 slot or more, got {slots}")
        self.slots = slots
        self._start = start
        self._episodes: dict[int, Episode] = {}

    def reset(self, tasks: Sequence[Task]) -> list[Observation]:
        """Start `tasks[i]` in slot i; slots beyond them are emptied."""
        if len(tasks) > self.slots:
            raise ValueError(f"{len(tasks)} tasks do not fit into a WebShop pool of {self.slots} slots")
        self._episodes = {slot: self._start(task) for slot, task in enumerate(tasks)}
        return [episode.observation() for episode in self._episodes.values()]

    def step(self, actions: Sequence[tuple[int, str]]) -> list[StepResult]:
        """Send (slot, action) pairs; results come in the same order."""
        slots = [slot for slot, _ in actions]
        for slot in slots:
            if slot not in self._episodes:
                raise ValueError(f"slot {slot} has no episode; reset() started slots {sorted(self._episodes)}")
        if len(set(slots)) != len(slots):
            raise ValueError(f"a slot may appear once in a step, got {sorted(slots)}")
        return [self._episodes[slot].step(action) for slot, action in actions]

    def close(self) -> None:
        """Drop the episodes."""
        self._episodes.clear()
