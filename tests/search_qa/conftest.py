"""Engines that answer from a script, and episodes driven by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.base import StepResult, Task
from benchmarks.search_qa import make
from benchmarks.search_qa.pool import SearchPool
from benchmarks.search_qa.retrieval.base import Hit, Retriever


class ScriptedEngine:
    """Finds the given passages for every query, unless the query is known to find others."""

    fingerprint = "scripted"

    def __init__(self, texts: Sequence[str] = ("Paris is a city.",), by_query: dict[str, Sequence[Hit]] | None = None):
        self.hits = [Hit(f"d{i}", f"Title {i}", text, 1.0 - i / 10) for i, text in enumerate(texts)]
        self.by_query = by_query or {}
        self.asked: list[list[str]] = []

    def search(self, queries, k):
        self.asked.append(list(queries))
        return [list(self.by_query.get(query, self.hits))[:k] for query in queries]

    def record(self):
        return {"engine": "scripted", "corpus": "scripted", "passages": len(self.hits)}

    def close(self):
        pass


class Play:
    """One episode of one question, against a scripted engine."""

    def __init__(self, golds: Sequence[str] = ("Paris",), engine: ScriptedEngine | None = None, **options):
        self.engine = engine or ScriptedEngine()
        self.benchmark = make(**options)
        self.pool = SearchPool(self.benchmark.rules, Retriever(self.engine, self.benchmark.options.top_k), 1)
        payload = {"question": "Capital of France?", "golden_answers": list(golds), "data_source": "nq"}
        (self.observation,) = self.pool.reset([Task("nq/1", "nq", payload)])
        self.start = self.observation

    def say(self, reply: str) -> tuple[bool, StepResult]:
        """A model's reply, through the profile's parser: (was the format valid, result)."""
        parsed = self.benchmark.parse(reply)
        (result,) = self.pool.step([(0, parsed.sent)])
        self.observation = result.observation
        return parsed.format_valid, result

    @property
    def queries(self) -> list[str]:
        """Every query that reached the engine."""
        return [query for batch in self.engine.asked for query in batch]


@pytest.fixture
def play():
    return Play
