"""What the commands `table`, `figure` and `report` make of a folder of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from analysis.cache import EVERYTHING, Wanted
from analysis.comparable import ComparisonError, comparable_sets
from analysis.grids import read_grid
from analysis.latex import latex
from analysis.load import Runs, RunsError, load_runs, no_runs, select
from analysis.paired import paired_table
from analysis.published import Key, Number, published
from analysis.render import Table
from analysis.selection import MISSING, candidates, meets
from analysis.spec import SpecError, TableSpec, full_key, read_spec
from analysis.tables import comparison
from analysis.tabulate import tabulate

SUFFIXES = {"text": "txt", "markdown": "md", "latex": "tex", "csv": "csv", "json": "json"}


def text_of(table: Table, kind: str) -> str:
    """A table as one of SUFFIXES."""
    makers = {
        "text": table.render_terminal,
        "markdown": table.markdown,
        "latex": lambda: latex(table),
        "csv": table.csv,
        "json": table.json,
    }
    return makers[kind]()


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE arguments; the values are YAML (numbers, lists, words)."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise SpecError(f"{pair!r} must be KEY=VALUE")
        try:
            found[full_key(key)] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise SpecError(f"{pair!r}: not a value: {' '.join(str(error).split())}") from error
    return found


def results(out: Path, cache: bool = True, wanted: Wanted = EVERYTHING) -> Runs:
    """All runs below `out`, with the wanted columns; none is not an error, a folder that isn't there is one."""
    if not out.exists():
        raise RunsError(f"{out}: no such folder; name the one that holds runs/ with --out")
    if not any(any(out.glob(pattern)) for pattern in ("runs/*/config.yaml", "*/config.yaml")):
        return no_runs()
    return load_runs(out, _cache_folder(out) if cache else None, wanted)


def _cache_folder(out: Path) -> Path:
    return out / "cache" / "analysis"


def narrowed(runs: Runs, where: Mapping[str, Any]) -> Runs:
    """The runs with these settings."""
    return select(runs, [one.run for one in candidates(runs, None) if meets(one, where)]) if where else runs


def make_table(
    spec: TableSpec,
    out: Path,
    *,
    where: Mapping[str, Any] | None = None,
    lists: Mapping[str, Any] | None = None,
    with_published: bool = True,
    cache: bool = True,
    paired: str | None = None,
) -> list[Table]:
    """The table of a spec from the runs below `out`, and with `paired`, the name of a row, the comparison of all rows
    with that one."""
    runs = results(out, cache) if out.exists() else no_runs()
    numbers = _numbers(spec) if with_published else {}
    spec = _overridden(spec, where or {}, lists or {})
    grid = read_grid(out, spec.grid)
    table = tabulate(spec, runs, grid, numbers)
    if not len(runs.runs):
        table = replace(table, notes=(f"No run in {out}: every row of ours is empty.", *table.notes))
    return [table] if paired is None else [table, paired_table(spec, runs, grid, paired)]


def figure_runs(
    out: Path, where: Mapping[str, Any], grid: str | None, cache: bool = True, wanted: Wanted = EVERYTHING
) -> tuple[Runs, pd.Series | None, list[str]]:
    """The runs that a figure draws; the names of their methods where a grid names its rows (else None); and one line
    for each cell of the grid that has no run."""
    runs = results(out, cache, wanted)
    if grid is None:
        return narrowed(runs, where), None, []
    cells = read_grid(out, grid)
    if cells is None:
        raise SpecError(f"no grid {grid!r} in {out / 'grids'}: submit it first, or leave --grid out")
    planned = {one.run: one for one in candidates(runs, cells) if meets(one, where)}
    missing = [
        f"{cell.row or cell.method} seed {cell.seed} (no run)"
        for cell in cells
        if cell.run in planned and planned[cell.run].state == MISSING
    ]
    runs = select(runs, planned)
    rows = {cell.run: cell.row for cell in cells}
    labels = runs.runs["run"].map(rows)
    return runs, labels if len(labels) and labels.notna().all() else None, missing


def report_tables(out: Path, runs: Runs, names: Sequence[str]) -> list[Table | str]:
    """The comparison of each comparable set, then each named table that has a run of ours; instead of a table that
    can't be made, why."""
    found: list[Table | str] = []
    for ids in comparable_sets(runs):
        try:
            found.append(comparison(select(runs, ids)))
        except ComparisonError as error:
            found.append(f"No comparison of {len(ids)} runs: {error}.")
    for name in names:
        spec = read_spec(name)
        try:
            table = tabulate(spec, runs, read_grid(out, spec.grid), _numbers(spec))
        except ComparisonError as error:
            found.append(f"No table {name}: {error}.")
            continue
        ours = [cell for (row, _), cell in table.cells.items() if row not in table.published]
        if any(cell.mean is not None for cell in ours):
            found.append(table)
    return found


def planned_without_run(out: Path, runs: Runs, where: Mapping[str, Any]) -> list[str]:
    """One line for each cell of the grids submitted to `out` that meets the conditions and has no run."""
    grids = {path.parent.name for path in (out / "grids").glob("*/cells.json")}
    return [
        f"{name}: {one.row or one.settings['algorithm.name']} seed {one.seed} (no run)"
        for name in sorted(grids)
        for one in candidates(runs, read_grid(out, name))
        if one.state == MISSING and meets(one, where)
    ]


def _numbers(spec: TableSpec) -> Mapping[Key, Number]:
    return published(*spec.published) if spec.published else {}


def _overridden(spec: TableSpec, where: Mapping[str, Any], lists: Mapping[str, Any]) -> TableSpec:
    """The spec with conditions added and evaluation lists replaced. SpecError for a list of another benchmark."""
    known = {"*", *(column.benchmark for column in spec.columns if column.benchmark)}
    for benchmark in lists:
        if benchmark not in known:
            raise SpecError(
                f"--list {benchmark}=...: table {spec.name} has no column of that benchmark (known: "
                f"{', '.join(sorted(known))})"
            )
    return replace(spec, narrowed=where, lists={**spec.lists, **{k: str(v) for k, v in lists.items()}})
