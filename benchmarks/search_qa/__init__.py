"""Search-QA: questions answered with a search engine, in three protocols."""

from __future__ import annotations

from typing import Any

from benchmarks.search_qa.options import Options, parse_options
from benchmarks.search_qa.suite import SearchQA

__all__ = ["Options", "SearchQA", "make"]


def make(**options: Any) -> SearchQA:
    """The benchmark with these `Options`. ValueError names an unknown option and the nearest known one."""
    return SearchQA(parse_options(**options))
