"""`creditbench table`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError

ORDER = 60
INCOMPLETE = 2


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "table", help="a paper's table (or your own) from run folders, with the published numbers beside ours"
    )
    command.add_argument(
        "name", nargs="?", metavar="NAME", help="a table, or the path of a table's YAML; none: list them"
    )
    command.add_argument(
        "--out", type=Path, default=Path("results"), help="runs lie in OUT/runs (default: %(default)s)"
    )
    command.add_argument(
        "--format", choices=("text", "markdown", "latex", "csv", "json"), default="text", help="what is printed"
    )
    command.add_argument(
        "--save", type=Path, metavar="FOLDER", help="also write NAME.txt, .md, .tex, .csv and .json there"
    )
    command.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="only runs with this setting, e.g. model=tiny"
    )
    command.add_argument(
        "--list", action="append", default=[], metavar="BENCHMARK=LIST", help="another evaluation list"
    )
    command.add_argument("--paired", metavar="ROW", help="also compare every row with this one, task by task")
    command.add_argument("--no-published", action="store_true", help="our rows only")
    command.add_argument("--no-cache", action="store_true", help="read every run folder again")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from analysis import products
    from analysis.spec import SpecError, read_spec, table_names

    if arguments.name is None:
        print("\n".join(f"{name:18}{read_spec(name).title}" for name in table_names()))
        return 0
    try:
        made = products.make_table(
            read_spec(arguments.name),
            arguments.out,
            where=products.settings(arguments.where),
            lists=products.settings(arguments.list),
            with_published=not arguments.no_published,
            cache=not arguments.no_cache,
            paired=arguments.paired,
        )
    except SpecError as error:
        raise UsageError(str(error)) from None
    for table in made:
        print(products.text_of(table, arguments.format), end="")
    if arguments.save is not None:
        _save(made, arguments.save, Path(arguments.name).stem)
    return INCOMPLETE if made[0].holes else 0


def _save(tables: Any, folder: Path, stem: str) -> None:
    from analysis import products
    from sweeps.files import atomic_write_text

    folder.mkdir(parents=True, exist_ok=True)
    for table, name in zip(tables, (stem, f"{stem}_paired"), strict=False):
        for kind, suffix in products.SUFFIXES.items():
            atomic_write_text(folder / f"{name}.{suffix}", products.text_of(table, kind))
