"""Which runs belong to which cell of a table, and which are missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.comparable import flat
from analysis.grids import GridCell
from analysis.load import Runs, select
from analysis.spec import Condition, full_key

MISSING = "no run"


@dataclass(frozen=True)
class Candidate:
    """A run that is there, or one that a grid says should be. `settings` are flat config keys: all of them for a run
    (`known`), the grid's axes otherwise. `state` is as in `Runs.runs`, or MISSING."""

    run: str
    settings: Mapping[str, Any]
    known: bool
    seed: int
    state: str
    reason: str
    row: str | None

    @property
    def benchmark(self) -> str | None:
        return self.settings.get("benchmark.name")


def candidates(runs: Runs, grid: Sequence[GridCell] | None) -> tuple[Candidate, ...]:
    """All runs; with a grid, its cells only, whether they have a run or not."""
    if grid is not None:
        runs = select(runs, [cell.run for cell in grid])
    frame = runs.runs[["run", "seed", "state", "reason"]]
    there = {row.run: row for row in frame.itertuples(index=False)}
    if grid is None:
        return tuple(_of_run(runs, row, None) for row in there.values())
    return tuple(_of_run(runs, there[cell.run], cell.row) if cell.run in there else _absent(cell) for cell in grid)


def _of_run(runs: Runs, row: Any, label: str | None) -> Candidate:
    return Candidate(row.run, flat(runs.configs[row.run]), True, int(row.seed), row.state, row.reason, label)


def _absent(cell: GridCell) -> Candidate:
    axes = {full_key(key): value for key, value in cell.axes.items()}
    axes.setdefault("algorithm.name", cell.method)
    axes.setdefault("seed", cell.seed)
    return Candidate(cell.run, flat(axes), False, cell.seed, MISSING, "", cell.row)


def meets(candidate: Candidate, *conditions: Condition) -> bool:
    """Whether a run's settings are those of all conditions. Of a run that isn't there only the axes of its grid are
    known; other keys are taken to fit."""
    return all(_fits(candidate, key, wanted) for condition in conditions for key, wanted in condition.items())


def _fits(candidate: Candidate, key: str, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):  # a value for each benchmark
        if candidate.benchmark not in wanted:
            return candidate.benchmark is None
        wanted = wanted[candidate.benchmark]
    if key not in candidate.settings:
        return not candidate.known or wanted is None
    return any(_equal(candidate.settings[key], value) for value in (wanted if isinstance(wanted, list) else [wanted]))


def _equal(left: Any, right: Any) -> bool:
    """Equality of config values: 1 and 1.0 are one number, "inf" and .inf too; true is no number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    a, b = _as_number(left), _as_number(right)
    return left == right if a is None or b is None else a == b


def _as_number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    return {"inf": math.inf, "-inf": -math.inf}.get(value) if isinstance(value, str) else None
