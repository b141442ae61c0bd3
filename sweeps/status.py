"""What `status` shows: a table of methods by benchmarks with the cells of each in every state, and the rest in
lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sweeps.plan import Cell
from sweeps.states import HERE, STATES, RunState

FAILED, INCOMPLETE, UNKNOWN = 1, 2, 3


@dataclass(frozen=True)
class View:
    """A grid's cells and their states; `notes` are said below the table."""

    grid: str
    table: str | None
    cells: Sequence[Cell]
    states: Mapping[str, RunState]
    notes: list[str] = field(default_factory=list)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of cells in each state that occurs."""
        found = Counter(self.states[cell.id].state for cell in self.cells)
        return {state: found[state] for state in STATES if found[state]}

    @property
    def exit_code(self) -> int:
        """0: all done; 1: some failed or lost; 3: the queue is unknown; 2: not complete yet."""
        if self.counts.get("failed") or self.counts.get("lost"):
            return FAILED
        if self.counts.get("unknown"):
            return UNKNOWN
        return 0 if set(self.counts) <= {"done"} else INCOMPLETE

    def as_json(self) -> dict[str, Any]:
        """Everything, for scripts."""
        cells = [{**cell.record(), "label": cell.label, **vars(self.states[cell.id])} for cell in self.cells]
        return {
            "schema": 1, "grid": self.grid, "table": self.table, "counts": self.counts, "exit_code": self.exit_code,
            "notes": self.notes, "cells": cells,
        }  # fmt: skip


def render(view: View) -> str:
    """The table as text, then the cells that need attention."""
    lines = [f"{view.grid}: {len(view.cells)} cells: " + ", ".join(f"{n} {state}" for state, n in view.counts.items())]
    lines += ["", *_table(view)]
    trouble = [cell for cell in view.cells if _needs_attention(view.states[cell.id])]
    if trouble:
        lines += ["", *[_line(view, cell) for cell in trouble[:10]]]
        lines += [f"... and {len(trouble) - 10} more; see --json"] if len(trouble) > 10 else []
        lines += [f"why: creditbench why {view.grid} CELL"]
    return "\n".join([*lines, *view.notes])


def _needs_attention(state: RunState) -> bool:
    doubtful = state.state == "running" and state.note not in ("", HERE)
    return doubtful or state.state in ("failed", "lost", "unknown")


def _line(view: View, cell: Cell) -> str:
    state = view.states[cell.id]
    return f"{cell.id}  {state.state:<7} {cell.label}: {state.note}"


def _table(view: View) -> list[str]:
    rows: dict[str, dict[str, list[str]]] = {}
    columns: dict[str, None] = {}
    for cell in view.cells:
        row, column = _row(cell), _column(view, cell)
        columns[column] = None
        rows.setdefault(row, {}).setdefault(column, []).append(view.states[cell.id].state)
    body = [["method", *columns], *[[row, *[_count(cells.get(c, [])) for c in columns]] for row, cells in rows.items()]]
    widths = [max(len(line[i]) for line in body) for i in range(len(body[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in body]


def _row(cell: Cell) -> str:
    """The method (or the row's label), with what else varies but benchmark, model and seed."""
    shown = {"algorithm", "benchmark", "model", "seed", "row"}
    others = [f"{axis.rpartition('.')[2]}={label}" for axis, label in cell.place.items() if axis not in shown]
    name = cell.row if cell.row is not None and "algorithm" not in cell.place else cell.method
    return " ".join([name, *([cell.row] if cell.row is not None and name != cell.row else []), *others])


def _column(view: View, cell: Cell) -> str:
    several = len({other.model for other in view.cells}) > 1
    return f"{cell.benchmark} {cell.model}" if several else cell.benchmark


def _count(states: Sequence[str]) -> str:
    """`2/3 done, 1 running`; a dash where nothing is planned."""
    if not states:
        return "-"
    found = Counter(states)
    others = [f"{found[state]} {state}" for state in STATES if state != "done" and found[state]]
    return ", ".join([f"{found['done']}/{len(states)} done", *others])
