"""WebShop: a shopping task in text over a catalogue of products, rebuilt without server, parser or JVM."""

from __future__ import annotations

from typing import Any

from benchmarks.webshop.options import Options, parse_options
from benchmarks.webshop.suite import WebShop

__all__ = ["Options", "WebShop", "make"]


def make(**options: Any) -> WebShop:
    """The benchmark with these `Options`. ValueError names an unknown option and the nearest known one."""
    return WebShop(parse_options(**options))
