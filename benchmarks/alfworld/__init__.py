"""ALFWorld: household tasks in text, played in the genuine engine on generated or official games."""

from __future__ import annotations

from typing import Any

from benchmarks.alfworld.options import Options, parse_options
from benchmarks.alfworld.suite import AlfWorld

__all__ = ["AlfWorld", "Options", "make"]


def make(**options: Any) -> AlfWorld:
    """The benchmark with these `Options`. ValueError names an unknown option and the nearest known one."""
    return AlfWorld(parse_options(**options))
