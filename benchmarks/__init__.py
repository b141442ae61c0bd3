"""The benchmarks, by name. `load` imports only the one asked for, so optional packages stay optional."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from benchmarks.base import Benchmark

_MODULES = {
    "alfworld": "benchmarks.alfworld",
    "webshop": "benchmarks.webshop",
    "search_qa": "benchmarks.search_qa",
    "worlds": "benchmarks.worlds",
}


def names() -> tuple[str, ...]:
    """Names of the benchmarks, in table order."""
    return tuple(_MODULES)


def load(name: str, **options: Any) -> Benchmark:
    """The benchmark `name` with its own options. ValueError names an unknown benchmark or option."""
    if name not in _MODULES:
        near = difflib.get_close_matches(name, _MODULES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown benchmark {name!r}{hint} (known: {', '.join(_MODULES)})")
    return importlib.import_module(_MODULES[name]).make(**options)
