"""What every retrieval engine gives, and the front that the environment uses: one batch a turn, each query once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class RetrievalError(OSError):
    """Retrieval that can't go on; one line that names where, how often it was tried and the way out."""


@dataclass(frozen=True)
class Hit:
    """One passage found. `id` is the corpus's own; `title` may be empty."""

    id: str
    title: str
    text: str
    score: float

    @property
    def contents(self) -> str:
        """The passage in the form of the wiki-18 corpus: "Title" in quotes, a line end, the text."""
        return f'"{self.title}"\n{self.text}'


class Engine(Protocol):
    """Finds passages. Deterministic: the same query gives the same hits, whatever it is batched with."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """At most k hits a query, best first; a query without searchable words has none."""
        ...

    def record(self) -> dict[str, Any]:
        """Engine, corpus name, size and hash, encoder, ...: what a result says about its retrieval, strict JSON."""
        ...

    @property
    def fingerprint(self) -> str:
        """16 hex digits over everything that decides the hits."""
        ...

    def close(self) -> None: ...


@dataclass
class Usage:
    """What a retriever has done so far; `seconds` are spent in the engine."""

    asked: int = 0
    sent: int = 0
    seconds: float = 0.0


@dataclass
class Retriever:
    """An engine with the number of hits fixed, repeated queries asked once, and answers remembered by
    (engine fingerprint, query, k): the members of a group ask the same things."""

    engine: Engine
    k: int
    remembered: int = 100_000
    usage: Usage = field(default_factory=Usage)
    _memory: OrderedDict[tuple[str, str, int], tuple[Hit, ...]] = field(default_factory=OrderedDict, repr=False)

    def search(self, queries: Sequence[str]) -> list[tuple[Hit, ...]]:
        """Hits of each query, in order. RetrievalError when the engine can't answer; nothing is remembered then."""
        fingerprint = self.engine.fingerprint
        keys = [(fingerprint, query, self.k) for query in queries]
        new = list(dict.fromkeys(key for key in keys if key not in self._memory))
        self.usage.asked += len(keys)
        found: Mapping[Any, tuple[Hit, ...]] = dict(zip(new, self._ask([query for _, query, _ in new]), strict=True))
        answers = [found[key] if key in found else self._recall(key) for key in keys]
        self._memory.update(found)
        while len(self._memory) > self.remembered:
            self._memory.popitem(last=False)
        return answers

    def _ask(self, queries: list[str]) -> list[tuple[Hit, ...]]:
        if not queries:
            return []
        started = time.perf_counter()
        try:
            answers = self.engine.search(queries, self.k)
        finally:
            self.usage.seconds += time.perf_counter() - started
        if len(answers) != len(queries):
            raise RetrievalError(f"the retrieval engine gave {len(answers)} answers to {len(queries)} queries")
        self.usage.sent += len(queries)
        return [tuple(hits[: self.k]) for hits in answers]

    def _recall(self, key: tuple[str, str, int]) -> tuple[Hit, ...]:
        self._memory.move_to_end(key)
        return self._memory[key]
