"""Episodes stepped together: the searches of a turn are one batch for the retrieval engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.base import Observation, StepResult, Task
from benchmarks.search_qa.episode import Episode, Rules
from benchmarks.search_qa.retrieval.base import Retriever


class SearchPool:
    """Slots in this process; an `EnvironmentPool`."""

    def __init__(self, rules: Rules, retriever: Retriever, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"a Search-QA pool needs 1 slot or more, got {slots}")
        self.slots, self.retriever = slots, retriever
        self.remote = getattr(retriever.engine, "remote", False)  # a search is waiting for a server
        self.rules = replace(rules, retrieval=retriever.engine.fingerprint)
        self._episodes: dict[int, Episode] = {}

    def reset(self, tasks: Sequence[Task]) -> list[Observation]:
        """Start `tasks[i]` in slot i; slots beyond them are emptied."""
        if len(tasks) > self.slots:
            raise ValueError(f"{len(tasks)} tasks do not fit into a Search-QA pool of {self.slots} slots")
        self._episodes = {slot: Episode(task, self.rules) for slot, task in enumerate(tasks)}
        return [episode.observation() for episode in self._episodes.values()]

    def step(self, actions: Sequence[tuple[int, str]]) -> list[StepResult]:
        """Send (slot, action) pairs; results come in the same order. RetrievalError ends the rollout."""
        self._check(actions)
        queries = [self._episodes[slot].act(action) for slot, action in actions]
        asked = [place for place, query in enumerate(queries) if query is not None]
        found = dict(zip(asked, self.retriever.search([queries[i] or "" for i in asked]), strict=True))
        return [self._episodes[slot].finish(found.get(place)) for place, (slot, _) in enumerate(actions)]

    def _check(self, actions: Sequence[tuple[int, str]]) -> None:
        slots = [slot for slot, _ in actions]
        for slot in slots:
            if slot not in self._episodes:
                raise ValueError(f"slot {slot} has no episode; reset() started slots {sorted(self._episodes)}")
        if len(set(slots)) != len(slots):
            raise ValueError(f"a slot may appear once in a step, got {sorted(slots)}")

    def close(self) -> None:
        """Drop the episodes. The retriever is the benchmark's and stays."""
        self._episodes.clear()
