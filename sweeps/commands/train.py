"""`creditbench train`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import add_common

ORDER = 20


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser("train", help="run one cell in this process, or go on with it")
    command.add_argument("--out", type=Path, default=Path("results"), help="runs go to OUT/runs (default: %(default)s)")
    add_common(command)
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sweeps.config import compose
    from sweeps.single import run_here

    config = compose(arguments.overrides, arguments.config_dir)
    return run_here(config, arguments.out)
