"""`creditbench quickstart`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError, add_common, cores

ORDER = 10


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "quickstart", help="train all methods side by side on this machine, then print a table and draw curves"
    )
    command.add_argument("--seeds", type=int, default=2, metavar="N", help="seeds 1 to N (default: 2)")
    command.add_argument("--methods", metavar="A,B", help="only these methods (default: all)")
    command.add_argument(
        "--jobs", type=int, default=cores(), metavar="N", help="runs at a time (default: cores, max 4)"
    )
    command.add_argument("--out", type=Path, default=Path("results/quickstart"), help="folder (default: %(default)s)")
    command.add_argument("--dry-run", action="store_true", help="print the plan; run nothing, write nothing")
    add_common(command)
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sweeps import quickstart

    if arguments.jobs < 1:
        raise UsageError(f"--jobs must be a whole number >= 1, got {arguments.jobs}")
    methods = [name.strip() for name in arguments.methods.split(",")] if arguments.methods is not None else None
    plan = quickstart.make_plan(arguments.out, methods, arguments.seeds, arguments.overrides, arguments.config_dir)
    if arguments.dry_run:
        quickstart.check(plan)
        print(quickstart.describe(plan, arguments.jobs))
        return 0
    return quickstart.execute(plan, arguments.jobs)
