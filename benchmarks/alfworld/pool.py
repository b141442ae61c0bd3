"""A fixed number of episodes stepped together in this process."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.alfworld.episode import Episode
from benchmarks.alfworld.options import Options
from benchmarks.alfworld.source import Player
from benchmarks.base import Observation, StepResult, Task


class LocalPool:
    """Slots in this process; an `EnvironmentPool`.

    Temporary disk: `engines` planner libraries of 1.1 MB (with the stock engine one a slot), held until exit.
    """

    def __init__(self, options: Options, slots: int) -> None:
        check_slots(slots)
        self.slots = slots
        self._player = Player(options)
        self._episodes: dict[int, Episode] = {}

    def reset(self, tasks: Sequence[Task]) -> list[Observation]:
        """Start `tasks[i]` in slot i; slots beyond them are emptied."""
        check_fit(len(tasks), self.slots)
        self._episodes = {slot: self._player.episode(task, slot) for slot, task in enumerate(tasks)}
        return [episode.observation() for episode in self._episodes.values()]

    def step(self, actions: Sequence[tuple[int, str]]) -> list[StepResult]:
        """Send (slot, action) pairs; results come in the same order."""
        check_actions(actions, set(self._episodes))
        return [self._episodes[slot].step(action) for slot, action in actions]

    def close(self) -> None:
        """Drop the games. Their libraries stay loaded until the process ends."""
        self._episodes.clear()


def check_slots(slots: int) -> None:
    """ValueError unless there is a slot."""
    if slots < 1:
        raise ValueError(f"an ALFWorld pool needs 1 slot or more, got {slots}")


def check_fit(tasks: int, slots: int) -> None:
    """ValueError when there are more tasks than slots."""
    if tasks > slots:
        raise ValueError(f"{tasks} tasks do not fit into an ALFWorld pool of {slots} slots")


def check_actions(actions: Sequence[tuple[int, str]], started: set[int]) -> None:
    """ValueError for a slot without an episode, or one given twice."""
    slots = [slot for slot, _ in actions]
    for slot in slots:
        if slot not in started:
            raise ValueError(f"slot {slot} has no episode; reset() started slots {sorted(started)}")
    if len(set(slots)) != len(slots):
        raise ValueError(f"a slot may appear once in a step, got {sorted(slots)}")
