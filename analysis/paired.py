"""Rows of a table compared with one of them, task by task."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.grids import GridCell
from analysis.load import Runs
from analysis.render import Table
from analysis.spec import TableSpec


def paired_table(spec: TableSpec, runs: Runs, grid: Sequence[GridCell] | None, reference: str) -> Table:
    raise NotImplementedError
