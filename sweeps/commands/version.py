"""`creditbench version`."""

from __future__ import annotations

import argparse
from typing import Any

ORDER = 90


def add(commands: Any) -> None:
    """The command's arguments."""
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_run)


def _run(_: argparse.Namespace) -> int:
    from importlib import metadata

    try:
        print(metadata.version("creditbench"))
    except metadata.PackageNotFoundError:
        print("unknown: creditbench is not installed; use pip install -e .")
    return 0
