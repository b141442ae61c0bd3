"""The commands: every module here is one command or a family, with `ORDER` (its place in the help) and `add`.

`add(commands)` adds parsers to argparse's subparsers and sets each one's `run`, a function from the parsed arguments
to the exit code. A module imports what its command needs when it runs, not before, so that `--help` is quick.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def add_all(commands: Any) -> None:
    """All commands, in the order of their `ORDER`."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    for module in sorted(modules, key=lambda module: (module.ORDER, module.__name__)):
        module.add(commands)
