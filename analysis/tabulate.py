"""From a table's YAML and a set of runs to a `Table`: our cells, the papers' rows beside them, and what is missing."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

import pandas as pd

from analysis.commits import odd_ones
from analysis.comparable import ComparisonError, check_evaluations, check_settings
from analysis.grids import GridCell
from analysis.load import Runs, select
from analysis.measures import PRINTED, Measures, Value
from analysis.published import Key, Number
from analysis.render import DASH, Cell, Column, Panel, Table, letters
from analysis.selection import MISSING, Candidate, candidates, meets
from analysis.spec import PUBLISHED_SUFFIX, ColumnSpec, PanelSpec, RowSpec, TableSpec, slug
from analysis.stats import RANKING_SEEDS, mean_std

PUBLISHED_MARK = "‡"


@dataclass(frozen=True)
class _Group:
    """The columns of a panel that are read at once: those of one benchmark."""

    panel: PanelSpec
    title: str
    prefix: str
    columns: tuple[ColumnSpec, ...]

    def key(self, column: ColumnSpec) -> str:
        return f"{self.prefix}{column.key}"


@dataclass
class _Draft:
    """A table while it is made."""

    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    holes: dict[str, None] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)  # run -> row
    fewest: int | None = None


def tabulate(
    spec: TableSpec,
    runs: Runs,
    grid: Sequence[GridCell] | None = None,
    published: Mapping[Key, Number] | None = None,
) -> Table:
    """The table of a spec: a row of ours and, where a paper printed one, its row below, marked as published.

    A cell of ours is the mean over the finished runs that meet the conditions of table, panel, row and column, one
    value a seed, with the sample standard deviation. Which runs should be there is told by `grid`, else by the
    spec's seeds, else by the seeds that any cell of the table has. `Table.holes` names every run and every value that
    is missing; it is empty for a complete table.

    Raises:
        ComparisonError: a cell has two runs of one seed, or runs of other settings; runs of one panel differ in
            benchmark, model, protocol, retrieval or the way of evaluation, other than in the keys that the rows
            compare.
        SpecError: a column's metric doesn't exist.
    """
    found = _found(spec, runs, grid)
    numbers = published or {}
    draft, measures = _Draft(), Measures(runs)
    seeds = spec.seeds or tuple(sorted({one.seed for one in found}))
    panels = []
    for group in _groups(spec):
        rows = _rows(spec, group, numbers)
        chosen = {row.label: _chosen(row, group, spec, found) for row in spec.rows if row.where is not None}
        _check(runs, spec, group, chosen)
        for row in spec.rows:
            if row.label in chosen:
                _fill_ours(draft, group, row, spec, chosen[row.label], seeds, measures, grid is None)
            if row.label + PUBLISHED_SUFFIX in rows:
                _fill_published(draft, group, row, numbers)
        panels.append(Panel(group.title, _columns(group), rows, _detail(runs, spec, group, chosen.values())))
    _mark_best(draft, panels, spec)
    return _table(spec, runs, draft, panels, numbers)


def finished_cells(
    spec: TableSpec, runs: Runs, grid: Sequence[GridCell] | None
) -> Iterator[tuple[str, str, str | None, dict[str, list[str]]]]:
    """(title, key prefix, evaluation list, {row label: ids of its finished runs}) of each panel, checked as in
    `tabulate`."""
    found = _found(spec, runs, grid)
    for group in _groups(spec):
        chosen = {row.label: _chosen(row, group, spec, found) for row in spec.rows if row.where is not None}
        _check(runs, spec, group, chosen)
        done = {label: [one.run for one in cell if one.state == "done"] for label, cell in chosen.items()}
        yield group.title, group.prefix, _list_of(spec, group), done


def _found(spec: TableSpec, runs: Runs, grid: Sequence[GridCell] | None) -> list[Candidate]:
    return [one for one in candidates(runs, grid) if meets(one, spec.where, spec.narrowed)]


# --- layout -----------------------------------------------------------------------------------------------------------


def _groups(spec: TableSpec) -> list[_Group]:
    names = list(dict.fromkeys(column.group for column in spec.columns))
    groups: dict[str, _Group] = {}
    for panel in spec.panels:
        for name in names:
            columns = tuple(column for column in spec.columns if column.group == name)
            title = ", ".join(part for part in (panel.title, name) if part)
            prefix = _free("/".join(slug(part) for part in (panel.title, name) if part), groups)
            groups[prefix] = _Group(panel, title, f"{prefix}/" if prefix else "", columns)
    return list(groups.values())


def _free(prefix: str, taken: Container[str]) -> str:
    """The prefix, with a number where another panel's title makes the same."""
    numbered = (f"{prefix}_{number}" for number in count(2))
    return next(one for one in chain((prefix,), numbered) if one not in taken)


def _columns(group: _Group) -> tuple[Column, ...]:
    shown = [
        Column(group.key(column), column.header, column.unit, column.digits, spread=True) for column in group.columns
    ]
    return (*shown, Column(f"{group.prefix}n", "n", "seeds", digits=0))


def _rows(spec: TableSpec, group: _Group, numbers: Mapping[Key, Number]) -> tuple[str, ...]:
    """Names of a group's rows: each method's own, then what a paper printed of it, where it printed anything."""
    names: list[str] = []
    for row in spec.rows:
        if row.where is not None:
            names.append(row.label)
        if any(_number(group, row, column, numbers) for column in group.columns):
            names.append(row.label + PUBLISHED_SUFFIX)
    return tuple(names)


def _detail(runs: Runs, spec: TableSpec, group: _Group, chosen: Iterable[Sequence[Candidate]]) -> str:
    """Which list the numbers of ours rest on, and how it was played."""
    name = _list_of(spec, group)
    ids = {one.run for cell in chosen for one in cell}
    headers = runs.evaluations[(runs.evaluations["list"] == name) & runs.evaluations["run"].isin(ids)]
    if not len(headers):
        return ""
    head = headers.iloc[0]
    return (
        f"ours: list {name} ({head['list_hash']}), {head['count']} tasks x {head['repeats']}, {head['decoding']} "
        f"decoding, temperature {head['temperature']}, at most {head['horizon']} steps, {head['label']}"
    )


def _list_of(spec: TableSpec, group: _Group) -> str | None:
    benchmark = next((column.benchmark for column in group.columns if column.benchmark), None)
    return spec.lists.get(benchmark or "", spec.lists.get("*"))


# --- cells of ours ----------------------------------------------------------------------------------------------------


def _chosen(row: RowSpec, group: _Group, spec: TableSpec, found: Sequence[Candidate]) -> list[Candidate]:
    labels = {other.label for other in spec.rows}
    name = group.columns[0].benchmark
    benchmark = {} if name is None else {"benchmark.name": name}
    fitting = [one for one in found if meets(one, group.panel.where, group.columns[0].where, benchmark)]
    return list({one.run: one for one in fitting if _in_row(one, row, labels)}.values())


def _in_row(one: Candidate, row: RowSpec, labels: set[str]) -> bool:
    """The grid's label names a row; beyond that, a run belongs to each row whose conditions it meets (one run may be
    the default of two sweeps), a missing one to no other row than its label's."""
    if one.row == row.label:
        return True
    if one.row in labels and not one.known:
        return False
    return any(meets(one, condition) for condition in row.where or ())


def _check(runs: Runs, spec: TableSpec, group: _Group, chosen: Mapping[str, Sequence[Candidate]]) -> None:
    """Refuse what can't stand in one panel; `chosen` are the runs of each row."""
    cells = list(chosen.values())
    for cell in cells:
        _check_seeds(cell, group)
    ids = {one.run for cell in cells for one in cell if one.state != MISSING}
    if not ids:
        return
    part = select(runs, ids)
    apart = {key for row in spec.rows for condition in row.where or () for key in condition}
    check_settings(part, apart)
    name = _list_of(spec, group)
    if name is not None:
        check_evaluations(part, name)
    for row in spec.rows:
        _check_settings(chosen.get(row.label, ()), row, group)


def _check_seeds(cell: Sequence[Candidate], group: _Group) -> None:
    by_seed: dict[int, Candidate] = {}
    for one in cell:
        first = by_seed.setdefault(one.seed, one)
        if first is not one:
            raise _two_of_one_cell(first, one, group, f", seed {one.seed}")


def _check_settings(cell: Sequence[Candidate], row: RowSpec, group: _Group) -> None:
    """The seeds of a cell are of one setting: what a row's conditions leave open may not differ from seed to seed.
    Alternatives of a row are one setting by several names."""
    by_alternative: dict[int | None, Candidate] = {}
    for one in cell:
        if one.known:
            met = next((place for place, condition in enumerate(row.where or ()) if meets(one, condition)), None)
            first = by_alternative.setdefault(met, one)
            if any(key.startswith("algorithm.") for key in _differing(first, one)):
                raise _two_of_one_cell(first, one, group, f", seeds {first.seed} and {one.seed}")


def _differing(first: Candidate, second: Candidate) -> list[str]:
    """Keys of the settings that two runs don't share."""
    keys = sorted({*first.settings, *second.settings})
    return [k for k in keys if first.settings.get(k) != second.settings.get(k) and not k.startswith("resources.")]


def _two_of_one_cell(first: Candidate, second: Candidate, group: _Group, seeds: str) -> ComparisonError:
    differing = [key for key in _differing(first, second) if key != "seed"]
    return ComparisonError(
        f"runs {first.run} and {second.run} both belong to one cell of {group.title or 'the table'}{seeds}; they "
        f"differ in {', '.join(differing) or 'nothing'}; narrow it with --where KEY=VALUE"
    )


def _fill_ours(
    draft: _Draft,
    group: _Group,
    row: RowSpec,
    spec: TableSpec,
    cell: Sequence[Candidate],
    seeds: Sequence[int],
    measures: Measures,
    free: bool,
) -> None:
    """The cells of one row of ours in one group; `free`: no grid says which seeds there should be."""
    done = [one for one in cell if one.state == "done"]
    place = f"{row.label} in {group.title}" if group.title else row.label
    expected = seeds if free else sorted({one.seed for one in cell})
    _note_holes(draft, place, cell, expected)
    draft.fewest = min(len(done), len(done) if draft.fewest is None else draft.fewest)
    draft.used |= {one.run: row.label for one in done}
    for column in group.columns:
        values = {one.seed: measures.value(one.run, column, _list_of(spec, group)) for one in done}
        draft.cells[row.label, group.key(column)] = _ours(values, _why(cell), expected)
        if column.metric != PRINTED:
            _note_values(draft, f"{place}, {column.header}", values)
    reason = "" if done else _why(cell)
    wanted = len({*expected, *(one.seed for one in cell)})
    shown = Cell(float(len(done)), seeds=len(done), mark="" if len(done) == wanted else f"/{wanted}")
    draft.cells[row.label, f"{group.prefix}n"] = shown if done else Cell(None, reason=reason)


def _ours(values: Mapping[int, Value], why: str, expected: Sequence[int]) -> Cell:
    numbers = [value.number for value in values.values() if value.number is not None]
    reasons = dict.fromkeys(value.reason for value in values.values() if value.reason)
    mean, std = mean_std(numbers)
    if mean is None:
        return Cell(None, reason="; ".join(reasons) or why)
    episodes = sum(value.episodes or 0 for value in values.values())
    short = f" (n={len(numbers)})" if len(numbers) < len(values) else ""
    return Cell(mean, std, len(numbers), episodes or None, mark=short)


def _why(cell: Sequence[Candidate]) -> str:
    """Why a cell has no finished run."""
    states = sorted({one.state for one in cell if one.state not in (MISSING, "done")})
    return f"no finished run ({', '.join(states)})" if states else MISSING


def _note_holes(draft: _Draft, place: str, cell: Sequence[Candidate], expected: Sequence[int]) -> None:
    """Name every run that should count and doesn't."""
    there = {one.seed: one for one in cell}
    by_state: dict[str, list[int]] = {}
    for seed in sorted({*expected, *there}):
        one = there.get(seed)
        if one is None or one.state != "done":
            state = MISSING if one is None else f"{one.state}: {one.reason}" if one.reason else one.state
            by_state.setdefault(state, []).append(seed)
    for state, seeds in by_state.items():
        draft.holes[f"Missing: {place}, {_seeds(seeds)}: {state}."] = None
    if not expected and not cell:
        draft.holes[f"Missing: {place}: no run."] = None


def _note_values(draft: _Draft, place: str, values: Mapping[int, Value]) -> None:
    """Name every finished run that lacks a value."""
    by_reason: dict[str, list[int]] = {}
    for seed, value in values.items():
        if value.number is None:
            by_reason.setdefault(value.reason, []).append(seed)
    for reason, seeds in by_reason.items():
        draft.holes[f"Missing: {place}, {_seeds(sorted(seeds))}: {reason}."] = None


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


# --- published rows ---------------------------------------------------------------------------------------------------


def _number(group: _Group, row: RowSpec, column: ColumnSpec, numbers: Mapping[Key, Number]) -> Number | None:
    if not (row.published and column.published and group.panel.published and column.benchmark):
        return None
    return numbers.get((column.benchmark, group.panel.published, row.published, column.published))


def _fill_published(draft: _Draft, group: _Group, row: RowSpec, numbers: Mapping[Key, Number]) -> None:
    name, seeds = row.label + PUBLISHED_SUFFIX, set()
    for column in group.columns:
        number = _number(group, row, column, numbers)
        if number is None:
            draft.cells[name, group.key(column)] = Cell(None, reason="not printed in the paper's table")
            continue
        seeds.add(number.seeds)
        draft.cells[name, group.key(column)] = Cell(number.value, number.std, number.seeds or 0, mark=number.note)
    stated = seeds.pop() if len(seeds) == 1 else None
    draft.cells[name, f"{group.prefix}n"] = (
        Cell(float(stated), seeds=stated) if stated else Cell(None, reason="the paper doesn't print n for this row")
    )


def _footnotes(cells: dict[tuple[str, str], Cell], panels: Sequence[Panel], names: Iterable[str]) -> list[str]:
    """Turn the notes of published cells into letters; returns the notes, a letter each."""
    given: dict[str, str] = {}
    names, free = set(names), letters()
    for panel in panels:
        for row in panel.rows:
            for column in panel.columns if row in names else ():
                cell = cells[row, column.key]
                if cell.mark:
                    if cell.mark not in given:
                        given[cell.mark] = next(free)
                    cells[row, column.key] = replace(cell, mark=f" [{given[cell.mark]}]")
    return [f"[{letter}] {note[:1].upper()}{note[1:]}." for note, letter in given.items()]


# --- the whole --------------------------------------------------------------------------------------------------------


def _mark_best(draft: _Draft, panels: Sequence[Panel], spec: TableSpec) -> None:
    """Bold: the best mean of a column, among our rows and among the published ones apart."""
    columns = {group.key(column): column for group in _groups(spec) for column in group.columns}
    for panel in panels:
        for shown in panel.columns:
            column = columns.get(shown.key)
            if column is None or column.better == "none":
                continue
            for printed in (True, False):
                rows = [row for row in panel.rows if row.endswith(PUBLISHED_SUFFIX) == printed]
                _bold(draft.cells, rows, shown, max if column.better == "higher" else min)


def _bold(cells: dict[tuple[str, str], Cell], rows: Sequence[str], column: Column, best: object) -> None:
    texts = {row: column.numbers(cells[row, column.key])[0] for row in rows if cells[row, column.key].mean is not None}
    if len(texts) < 2 or not callable(best):
        return
    winner = best(float(text) for text in texts.values())
    for row, text in texts.items():
        if float(text) == winner:
            cells[row, column.key] = replace(cells[row, column.key], best=True)


def _table(spec: TableSpec, runs: Runs, draft: _Draft, panels: Sequence[Panel], numbers: Mapping[Key, Number]) -> Table:
    printed = frozenset(row for panel in panels for row in panel.rows if row.endswith(PUBLISHED_SUFFIX))
    footnotes = _footnotes(draft.cells, panels, printed)
    marks = dict.fromkeys(printed, PUBLISHED_MARK)
    odd, words = _commits(runs, draft)
    marks |= dict.fromkeys(odd, "*")
    notes = [*spec.notes, *_caution(draft), *_reading(spec, numbers, bool(printed)), *footnotes]
    return Table(
        title=spec.title,
        panels=tuple(panels),
        cells=draft.cells,
        notes=(*notes, *([f"* {words}"] if words else ())),
        marks=marks,
        published=printed,
        holes=tuple(draft.holes),
    )


def _commits(runs: Runs, draft: _Draft) -> tuple[set[str], str]:
    frame = runs.runs[runs.runs["run"].isin(draft.used)]
    if not len(frame):
        return set(), ""
    return odd_ones(pd.Series(frame["run"].map(draft.used)), frame["seed"], frame["commit"])


def _caution(draft: _Draft) -> list[str]:
    if draft.fewest is None or draft.fewest >= RANKING_SEEDS:
        return []
    fewest = "no finished seed" if draft.fewest == 0 else f"only {draft.fewest} finished seed"
    return [
        f"Few seeds: some of our rows have {fewest}{'s' if draft.fewest > 1 else ''}. Fewer than {RANKING_SEEDS} seeds "
        "do not tell methods apart: bold is the largest mean and no more than that."
    ]


def _reading(spec: TableSpec, numbers: Mapping[Key, Number], printed: bool) -> list[str]:
    """How to read the numbers."""
    notes = [
        "Ours: mean ± sample standard deviation over n finished seeds, one value a seed (no ± with one seed). Bold: "
        "best mean of our rows; of the published rows apart."
    ]
    if any(column.when == "best" for column in spec.columns):
        notes.append(
            "(best): the evaluation at which a run solved most episodes, chosen on the very list that is shown, so it "
            "flatters; the other columns are after the last update."
        )
    if printed and spec.published:
        paper, table = spec.published
        notes.append(
            f"{PUBLISHED_MARK} As printed by {paper}, {table}: not run here, never mixed with our runs; "
            f"{DASH} there: not printed."
        )
    return notes
