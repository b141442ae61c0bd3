"""Small known worlds with text faces: exact values for every policy, and a benchmark of the common trainer."""

from __future__ import annotations

from typing import Any

from benchmarks.worlds.suite import Options, Worlds, parse_options

__all__ = ["Options", "Worlds", "make"]


def make(**options: Any) -> Worlds:
    """The benchmark with these `Options`. ValueError names what is unknown or wrong."""
    return Worlds(parse_options(**options))
