"""`creditbench report`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError

ORDER = 62
INCOMPLETE = 2


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "report", help="one HTML page of all results: tables, curves, timing, subtasks, graphs, runs"
    )
    command.add_argument(
        "--out", type=Path, default=Path("results"), help="runs lie in OUT/runs (default: %(default)s)"
    )
    command.add_argument("--save", type=Path, metavar="FILE", help="the page (default: OUT/report.html)")
    command.add_argument("--table", action="append", default=[], metavar="NAME", help="also this table or YAML file")
    command.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="only runs with this setting, e.g. model=tiny"
    )
    command.add_argument("--no-cache", action="store_true", help="read every run folder again")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from analysis import products
    from analysis.report import report_html
    from analysis.report_data import report_data, summary
    from analysis.spec import SpecError, table_names
    from sweeps.files import atomic_write_text

    page = arguments.save or arguments.out / "report.html"
    try:
        where = products.settings(arguments.where)
        every = products.results(arguments.out, not arguments.no_cache)
        runs, missing = products.narrowed(every, where), products.planned_without_run(arguments.out, every, where)
        tables = products.report_tables(arguments.out, runs, [*table_names(), *arguments.table])
    except SpecError as error:
        raise UsageError(str(error)) from None
    title = f"creditbench: {arguments.out.resolve().name}"
    page.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(page, report_html(title, summary(runs), tables, report_data(runs, page)))
    print(page)
    for line in missing:
        print(f"missing: {line}")
    return 0 if not missing and len(runs.runs) and (runs.runs["state"] == "done").all() else INCOMPLETE
