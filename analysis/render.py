"""A table as data (`Table`) and its four texts: terminal, Markdown, CSV and strict JSON."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count, product
from string import ascii_lowercase

DASH = "–"  # what stands in the place of a missing value


@dataclass(frozen=True)
class Cell:
    """One value: the mean over `seeds` runs (0: of none, or the paper doesn't say) and its sample std (None with fewer
    than two seeds). A missing value has mean None and a `reason`. `episodes` is the number of episodes behind it,
    where it comes from episodes. `mark` is put behind the value and explained in the notes; `best` values are set in
    bold."""

    mean: float | None
    std: float | None = None
    seeds: int = 0
    episodes: int | None = None
    reason: str = ""
    mark: str = ""
    best: bool = False


@dataclass(frozen=True)
class Column:
    """`key` is unique in the table. `digits` after the point; None shows three significant digits. `signed` shows the
    plus sign, `spread` the std (CSV and JSON hold it always)."""

    key: str
    header: str
    unit: str
    digits: int | None = 1
    signed: bool = False
    spread: bool = False

    def text(self, cell: Cell) -> str:
        """The cell as a reader sees it."""
        if cell.mean is None:
            return DASH
        mean, std = self.numbers(cell)
        return (f"{mean} ±{std}" if std else mean) + cell.mark

    def numbers(self, cell: Cell) -> tuple[str, str]:
        """(mean, std) of a cell that has a value, as shown; std is "" where there is none to show."""
        if cell.mean is None:
            return DASH, ""
        digits = _significant(cell.mean) if self.digits is None else self.digits
        mean = f"{cell.mean:{'+' if self.signed else ''}.{digits}f}"
        return mean, "" if cell.std is None or not self.spread else f"{cell.std:.{digits}f}"


def letters() -> Iterator[str]:
    """a to z, then aa, ab, and so on without end: names of footnotes and panels."""
    return ("".join(word) for size in count(1) for word in product(ascii_lowercase, repeat=size))


def _significant(value: float) -> int:
    """Digits after the point that show three significant digits (at most four, so that times stay readable)."""
    size = abs(value)
    if size == 0:
        return 0
    return next((digits for bound, digits in ((100, 0), (10, 1), (1, 2), (0.1, 3)) if size >= bound), 4)


@dataclass(frozen=True)
class Panel:
    """A part of a table that is read at once: some columns for some rows."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[str, ...]
    detail: str = ""  # what the numbers were measured on, under the title


@dataclass(frozen=True)
class Table:
    """Methods by measures. `cells` is keyed by (row, column key), complete for every panel; `marks` holds a sign put
    behind a row's name, explained in `notes`; `published` names the rows whose numbers others printed; `holes` says,
    one line each, what should be there and is not."""

    title: str
    panels: tuple[Panel, ...]
    cells: Mapping[tuple[str, str], Cell]
    notes: tuple[str, ...] = ()
    marks: Mapping[str, str] | None = None
    published: frozenset[str] = frozenset()
    holes: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        """Every row's name, in order."""
        return tuple(dict.fromkeys(row for panel in self.panels for row in panel.rows))

    def cell(self, row: str, key: str) -> Cell:
        """The cell of a row (a method) and a column key. KeyError when the table has no such cell."""
        return self.cells[row, key]

    def render_terminal(self, width: int = 100) -> str:
        """Aligned plain text at most `width` wide: a panel that is wider goes on below, with the row names again."""
        blocks = [_wrapped(self.title, width)]
        for panel in self.panels:
            grids = [aligned_table(grid) for grid in _split(self._grid(panel), width)]
            heads = [_wrapped(text, width) for text in (panel.title, panel.detail) if text]
            blocks.append("\n".join([*heads, "\n\n".join(grids)]))
        blocks.append("\n".join(_wrapped(note, width, "  ") for note in self.all_notes()))
        return "\n\n".join(blocks) + "\n"

    def markdown(self) -> str:
        """GitHub Markdown: one table a panel, then the notes."""
        blocks = [f"## {_escaped(self.title)}"]
        for panel in self.panels:
            heads = [f"### {_escaped(panel.title)}", _escaped(panel.detail)]
            blocks += [*filter(None, heads), pipe_table(self._grid(panel), self._best(panel))]
        blocks.append("\n".join(f"- {_escaped(note)}" for note in self.all_notes()))
        return "\n\n".join(blocks) + "\n"

    def csv(self) -> str:
        """One line a row: its name, who measured it, each column's mean, `<key>.std` and `<key>.seeds`, empty where
        missing or, of seeds, not stated; then `missing`."""
        columns = [column for panel in self.panels for column in panel.columns]
        header = [name for c in columns for name in (c.key, f"{c.key}.std", f"{c.key}.seeds")]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["method", "source", *header, "missing"])
        for row in self.rows:
            cells = [self.cells.get((row, column.key), Cell(None)) for column in columns]
            values = [value for cell in cells for value in (cell.mean, cell.std, cell.seeds or None)]
            source = "published" if row in self.published else "ours"
            writer.writerow([row, source, *values, "; ".join(dict.fromkeys(c.reason for c in cells if c.reason))])
        return out.getvalue()

    def json(self) -> str:
        """Everything, as strict JSON (a missing value is null and has its reason)."""
        record = {
            "schema": 1,
            "title": self.title,
            "panels": [asdict(panel) for panel in self.panels],
            "rows": [
                {
                    "method": row,
                    "mark": (self.marks or {}).get(row, ""),
                    "published": row in self.published,
                    "cells": {key: asdict(cell) for (name, key), cell in self.cells.items() if name == row},
                }
                for row in self.rows
            ],
            "notes": list(self.all_notes()),
            "holes": list(self.holes),
        }
        return json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    def _grid(self, panel: Panel) -> list[list[str]]:
        """Header and rows as texts; the first column names the rows."""
        head = ["method", *(column.header for column in panel.columns)]
        marks = self.marks or {}
        body = [
            [row + marks.get(row, ""), *(column.text(self.cells[row, column.key]) for column in panel.columns)]
            for row in panel.rows
        ]
        return [head, *body]

    def _best(self, panel: Panel) -> set[tuple[int, int]]:
        """(row, column) of the bold texts of `_grid`."""
        return {
            (i, j)
            for i, row in enumerate(panel.rows, start=1)
            for j, column in enumerate(panel.columns, start=1)
            if self.cells[row, column.key].best
        }

    def all_notes(self) -> tuple[str, ...]:
        """The notes, what is missing, and why there are dashes."""
        return (*self.notes, *self.holes, *self._missing())

    def _missing(self) -> Iterable[str]:
        """One line a reason for a dash, with the rows it holds for."""
        by_reason: dict[str, dict[str, None]] = {}
        for panel in self.panels:
            for row in panel.rows:
                for column in panel.columns if row not in self.published else ():
                    cell = self.cells[row, column.key]
                    if cell.mean is None:
                        by_reason.setdefault(cell.reason or "not measured", {})[row] = None
        return [f"{DASH} {', '.join(rows)}: {reason}" for reason, rows in by_reason.items()]


def _wrapped(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _split(grid: list[list[str]], width: int) -> list[list[list[str]]]:
    """Cut the columns of a grid into grids at most `width` wide, each with the first column."""
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    parts: list[list[int]] = [[0]]
    for index in range(1, len(widths)):
        used = sum(widths[i] + 2 for i in parts[-1])
        if used + widths[index] > width and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(index)
    return [[[row[i] for i in part] for row in grid] for part in parts]


def aligned_table(grid: list[list[str]]) -> str:
    """Names to the left, values to the right, a rule under the header."""
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = [
        "  ".join(
            text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in grid
    ]
    return "\n".join([lines[0].rstrip(), "-" * len(lines[0]), *(line.rstrip() for line in lines[1:])])


def pipe_table(grid: list[list[str]], bold: Container[tuple[int, int]] = ()) -> str:
    """A GitHub Markdown table; the first row is the header, names to the left, values to the right. `bold` holds the
    (row, column) of texts in bold."""

    def text(i: int, j: int, cell: str) -> str:
        return f"**{_escaped(cell)}**" if (i, j) in bold else _escaped(cell)

    rows = [f"| {' | '.join(text(i, j, cell) for j, cell in enumerate(row))} |" for i, row in enumerate(grid)]
    rule = "| --- |" + " ---: |" * (len(grid[0]) - 1)
    return "\n".join([rows[0], rule, *rows[1:]])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
