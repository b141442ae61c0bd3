"""`creditbench search-qa`: exact match of finished runs, pooled over questions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError

ORDER = 65


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "search-qa", help="exact match by data set, means and search behavior of Search-QA runs, pooled over questions"
    )
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    command.add_argument(
        "--list", dest="name", metavar="NAME", help="an evaluation, e.g. unseen_games (default: every list)"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there, as strict JSON")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from benchmarks.search_qa.metrics import markdown
    from sweeps.files import atomic_write_json

    reports = _reports(arguments.runs, arguments.name)
    for name, rows in reports.items():
        print(f"## {name}\n\n{markdown(rows)}")
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(arguments.json, reports)
        print(f"written: {arguments.json}")
    return 0


def _reports(folders: list[Path], wanted: str | None) -> dict[str, dict[str, Any]]:
    """{evaluation: {row: report}}; a row is a run."""
    from analysis.stats import wilson
    from benchmarks.search_qa.metrics import Tally, report

    tables: dict[str, dict[str, Tally]] = {}
    missing: dict[str, str] = {}
    made_of: dict[str, tuple[str, str]] = {}  # evaluation -> (data, retrieval) it was made with
    for folder in folders:
        run, config = _open(folder)
        missing |= ((run.result() or {}).get("data") or {}).get("missing") or {}
        for name, (header, rows) in run.evaluations().items():
            if wanted is not None and name.split("/")[0] != wanted:
                continue
            tally = Tally().add(rows)
            _check_alike(made_of, name, f"{header['label']} {header['list_hash']}", tally, folder)
            tables.setdefault(name, {})[f"{config['algorithm']['name']} seed {config['seed']} ({run.id[:6]})"] = tally
    if not tables:
        raise UsageError(f"no evaluation {wanted!r} in these runs" if wanted else "no evaluation in these runs yet")
    return {name: {row: report(tally, wilson, missing) for row, tally in rows.items()} for name, rows in tables.items()}


def _open(folder: Path) -> tuple[Any, dict[str, Any]]:
    from sweeps.files import StoreError
    from sweeps.store import RunFolder

    try:
        run = RunFolder.open(folder)
    except StoreError as error:
        raise UsageError(str(error)) from None
    config = run.config()
    if config["benchmark"]["name"] != "search_qa":
        raise UsageError(f"run {folder} is of {config['benchmark']['name']}, not of search_qa")
    return run, config


def _check_alike(made_of: dict[str, tuple[str, str]], name: str, data: str, tally: Any, folder: Path) -> None:
    """Unlike protocols, questions or retrieval never share a table."""
    mine = (data, ", ".join(sorted(tally.facts.get("retrieval", ()))))
    other = made_of.setdefault(name, mine)
    if mine != other:
        raise UsageError(
            f"{folder}: its {name} was made with {mine[0]}, retrieval {mine[1]}, another run's with {other[0]}, "
            f"retrieval {other[1]}; make a table of each kind"
        )
