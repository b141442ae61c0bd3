"""`creditbench cancel`, `gc` and `fsck`: stopping a grid's cells, tidying and checking the store."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sweeps.commands.watch import add_record, read_view

ORDER = 44


def add(commands: Any) -> None:
    """The commands' arguments."""
    for name, run, text in (
        ("cancel", _cancel, "stop a grid's queued and running cells; submit leaves them alone, retry does not"),
        ("gc", _gc, "remove what no run needs any more: drafts, abandoned submissions, old code, old checkpoints"),
    ):
        command = commands.add_parser(name, help=text)
        add_record(command)
        command.add_argument("--dry-run", action="store_true", help="say what would be done; do nothing")
        command.add_argument("--json", action="store_true", help="print the outcome as JSON")
        command.set_defaults(run=run)
        if name == "gc":
            command.add_argument("--checkpoints", action="store_true", help="also checkpoints of runs that are done")
    fsck = commands.add_parser("fsck", help="check every file of a grid's runs; exit code 1 if one is damaged")
    add_record(fsck)
    fsck.add_argument("--json", action="store_true", help="print the findings as JSON")
    fsck.set_defaults(run=_fsck)


def _cancel(arguments: argparse.Namespace) -> int:
    from sweeps import upkeep

    view = read_view(arguments)
    cells = [cell for cell in view.cells if view.states[cell.id].state in ("queued", "running")]
    said = upkeep.cancel(arguments.out, [cell.id for cell in cells], arguments.dry_run)
    return _print(arguments, said, f"{len(cells)} cells")


def _gc(arguments: argparse.Namespace) -> int:
    from sweeps import upkeep

    view = read_view(arguments)
    removed = upkeep.collect(arguments.out, view, arguments.checkpoints, arguments.dry_run)
    return _print(arguments, removed, f"{len(removed)} removed")


def _fsck(arguments: argparse.Namespace) -> int:
    from sweeps import upkeep

    view = read_view(arguments)
    found = upkeep.check(arguments.out, view)
    _print(arguments, found, f"{len(view.cells)} cells checked, {len(found)} problems")
    return 1 if found else 0


def _print(arguments: argparse.Namespace, lines: list[str], summary: str) -> int:
    if arguments.json:
        print(json.dumps(lines, indent=1, allow_nan=False))
    else:
        print("\n".join([*lines, summary + (" (dry run)" if getattr(arguments, "dry_run", False) else "")]))
    return 0
