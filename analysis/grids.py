"""The cells that a sweep should have, from `<out>/grids/<grid>/cells.json`, so that a table sees what is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.load import RunsError

SCHEMA = 1


@dataclass(frozen=True)
class GridCell:
    """One planned run: its id, the config keys that its grid tells (dotted), its row's label if the grid has one."""

    run: str
    axes: Mapping[str, Any]
    method: str
    seed: int
    row: str | None


def read_grid(out: Path, name: str) -> tuple[GridCell, ...] | None:
    """The cells of a grid; None when the grid was never submitted here. RunsError for a file that can't be used."""
    path = out / "grids" / name / "cells.json"
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunsError(f"{path}: not JSON ({error}); plan the grid again") from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA or not isinstance(record.get("cells"), list):
        raise RunsError(f"{path}: not the cells of a grid (schema {SCHEMA}); plan the grid again")
    return tuple(_cell(path, number, cell) for number, cell in enumerate(record["cells"]))


def _cell(path: Path, number: int, cell: Any) -> GridCell:
    try:
        named = {f"{key}.name": cell[key] for key in ("benchmark", "model") if key in cell}
        return GridCell(cell["id"], named | cell["axes"], cell["method"], int(cell["seed"]), cell.get("row"))
    except (KeyError, TypeError, ValueError) as error:
        raise RunsError(f"{path}: cell {number} lacks {error}; plan the grid again") from error
