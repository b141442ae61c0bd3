"""`creditbench estimator-docs`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

ORDER = 85


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "estimator-docs", help="measure again the numbers in the estimators' pages and write them there"
    )
    command.add_argument(
        "--folder", type=Path, default=Path("docs/estimators"), help="folder of the pages (default: %(default)s)"
    )
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from analysis.estimator_docs import pages, refreshed
    from sweeps.files import atomic_write_text

    for page in pages(arguments.folder):
        text = refreshed(page)
        changed = text != page.read_text(encoding="utf-8")
        if changed:
            atomic_write_text(page, text)
        print(f"{page}: {'written' if changed else 'as it was'}", flush=True)
    return 0
