"""`creditbench figure`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError

ORDER = 61
INCOMPLETE = 2


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser("figure", help="a figure from run folders, as PNG, PDF and SVG")
    command.add_argument("name", nargs="?", metavar="NAME", help="a figure, or `all`; none: list them")
    command.add_argument(
        "--out", type=Path, default=Path("results"), help="runs lie in OUT/runs (default: %(default)s)"
    )
    command.add_argument("--save", type=Path, metavar="FOLDER", help="where files go (default: OUT/figures)")
    command.add_argument("--format", default="png,pdf,svg", metavar="A,B", help="default: %(default)s")
    command.add_argument("--grid", metavar="GRID", help="only the cells of this grid, by the names of its rows")
    command.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="only runs with this setting, e.g. model=tiny"
    )
    command.add_argument("--list", metavar="NAME", dest="evaluation_list", help="the evaluation list of scores")
    command.add_argument("--no-cache", action="store_true", help="read every run folder again")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from analysis import products
    from analysis.figure_catalog import draw_figure, figure_names, wanted
    from analysis.spec import SpecError

    known = figure_names()
    if arguments.name is None:
        print("\n".join(f"{name:28}{words}" for name, words in known.items()))
        return 0
    names = list(known) if arguments.name == "all" else [arguments.name]
    left_out: list[str] = []
    try:
        where = products.settings(arguments.where)
        runs, methods, missing = products.figure_runs(
            arguments.out, where, arguments.grid, cache=not arguments.no_cache, wanted=wanted(names)
        )
        for name in names:
            drawn = draw_figure(
                name,
                runs,
                arguments.save or arguments.out / "figures",
                [one.strip() for one in arguments.format.split(",")],
                methods,
                arguments.evaluation_list,
            )
            print("\n".join(map(str, drawn.files)) or f"{name}: nothing to draw")
            left_out += [f"{name}: {line}" for line in drawn.left_out]
    except SpecError as error:
        raise UsageError(str(error)) from None
    for line in [*missing, *left_out]:
        print(f"not drawn: {line}")
    return INCOMPLETE if missing or left_out else 0
