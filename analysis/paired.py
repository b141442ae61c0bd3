"""Rows of a table compared with one of them, task by task, on the evaluation list that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.grids import GridCell
from analysis.load import Runs
from analysis.render import Cell, Column, Panel, Table
from analysis.resampling import McNemar, holm, improvement, mcnemar, paired_bootstrap
from analysis.spec import SpecError, TableSpec
from analysis.stats import RANKING_SEEDS
from analysis.tabulate import finished_cells

SEED = 0  # of the bootstrap: equal runs give equal tables

COLUMNS = (
    Column("difference", "difference", "points", signed=True),
    Column("low", "95 % from", "points", signed=True),
    Column("high", "to", "points", signed=True),
    Column("p", "p", "", digits=4),
    Column("p_holm", "p (Holm)", "", digits=4),
    Column("improvement", "P(better)", "", digits=2),
    Column("only_row", "only row", "episodes", digits=0),
    Column("only_reference", "only ref", "episodes", digits=0),
    Column("mcnemar", "McNemar p", "", digits=4),
    Column("mcnemar_holm", "(Holm)", "", digits=4),
    Column("n", "n", "seeds", digits=0),
    Column("n_reference", "n ref", "seeds", digits=0),
)


@dataclass(frozen=True)
class _Comparison:
    """A row against the reference, or why there is none."""

    values: dict[str, float]
    seeds: int
    reason: str = ""


def paired_table(spec: TableSpec, runs: Runs, grid: Sequence[GridCell] | None, reference: str) -> Table:
    """Each row of ours against row `reference`, in every panel of the table: difference of success in points with the
    interval and p of a paired bootstrap (seeds and tasks drawn), the probability that a run is better, and McNemar's
    test over episodes paired by seed, task and repeat. p values are corrected by Holm within a panel.

    Raises SpecError for a reference that is no row of ours.
    """
    labels = [row.label for row in spec.rows if row.where is not None]
    if reference not in labels:
        raise SpecError(f"--paired: no row of ours is called {reference!r} (known: {', '.join(labels)})")
    panels: list[Panel] = []
    cells: dict[tuple[str, str], Cell] = {}
    fewest = RANKING_SEEDS
    for title, prefix, name, by_row in finished_cells(spec, runs, grid):
        others = tuple(label for label in labels if label != reference)
        found = {row: _compare(runs, by_row[row], by_row[reference], name, reference) for row in others}
        _correct(found)
        columns = tuple(Column(prefix + c.key, c.header, c.unit, c.digits, c.signed) for c in COLUMNS)
        panels.append(Panel(f"{title + ': ' if title else ''}against {reference}", columns, others, f"list {name}"))
        cells.update(_cells(found, prefix))
        fewest = min([fewest, *(one.seeds for one in found.values())])
    return Table(f"{spec.title}: paired by task", tuple(panels), cells, tuple(_notes(fewest)))


def _compare(runs: Runs, row: list[str], reference: list[str], name: str | None, label: str) -> _Comparison:
    if not row or not reference:
        return _Comparison({}, 0, "no finished run" if not row else f"no finished run of {label}")
    ours, theirs = _outcomes(runs, row, name), _outcomes(runs, reference, name)
    if ours.empty or theirs.empty:
        return _Comparison({}, 0, f"no evaluation of {name} after training")
    a, b = _by_task(ours), _by_task(theirs)
    if list(a.columns) != list(b.columns):
        return _Comparison({}, 0, f"other tasks than {label}'s")
    difference = paired_bootstrap(100 * a.to_numpy(), 100 * b.to_numpy(), np.random.default_rng(SEED))
    test = _mcnemar(ours, theirs)
    values = {
        "difference": difference.mean,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p,
        "improvement": improvement(a.mean(axis=1).to_numpy(), b.mean(axis=1).to_numpy()),
        "n": float(len(a)),
        "n_reference": float(len(b)),
    }
    if test is not None:
        values |= {"only_row": test.only_first, "only_reference": test.only_second, "mcnemar": test.p}
    return _Comparison(values, min(len(a), len(b)))


def _outcomes(runs: Runs, chosen: list[str], name: str | None) -> pd.DataFrame:
    """Episodes of runs on a list after training, with their seed."""
    episodes = runs.episodes
    rows = episodes[episodes["run"].isin(chosen) & (episodes["list"] == name) & (episodes["when"] == "after")]
    return rows[["run", "task", "repeat", "success"]].merge(runs.runs[["run", "seed"]], on="run")


def _by_task(outcomes: pd.DataFrame) -> pd.DataFrame:
    """[seeds, tasks] share of solved repeats."""
    return outcomes.astype({"success": float}).pivot_table(index="seed", columns="task", values="success")


def _mcnemar(ours: pd.DataFrame, theirs: pd.DataFrame) -> McNemar | None:
    """Over the episodes of seeds that both have; None without such a seed."""
    both = ours.merge(theirs, on=["seed", "task", "repeat"], suffixes=("", "_reference"))
    return mcnemar(both["success"].to_numpy(), both["success_reference"].to_numpy()) if len(both) else None


def _correct(found: dict[str, _Comparison]) -> None:
    for key, name in (("p", "p_holm"), ("mcnemar", "mcnemar_holm")):
        tested = [one for one in found.values() if key in one.values]
        for one, value in zip(tested, holm([one.values[key] for one in tested]), strict=True):
            one.values[name] = value


def _cells(found: dict[str, _Comparison], prefix: str) -> Iterator[tuple[tuple[str, str], Cell]]:
    for row, one in found.items():
        for column in COLUMNS:
            value = one.values.get(column.key)
            reason = "" if value is not None else one.reason or "no seed in common"
            yield (row, prefix + column.key), Cell(value, seeds=one.seeds if value is not None else 0, reason=reason)


def _notes(fewest: int) -> list[str]:
    notes = [
        "Difference: success of the row less the reference's, in points; interval and p by a bootstrap that draws "
        "seeds of each method and, for both at once, tasks. P(better): share of pairs of runs in which the row's is "
        "the higher, ties half. McNemar: episodes that only one of two runs of a seed solves; its p tells these "
        "policies apart and says nothing of further seeds. Holm: corrected for the rows of the panel."
    ]
    if fewest < RANKING_SEEDS:
        notes.append(
            f"Few seeds: a comparison here has {fewest or 'no'} seed{'' if fewest == 1 else 's'} on one side. With "
            f"fewer than {RANKING_SEEDS}, seeds can't be resampled soundly: the intervals are too narrow."
        )
    return notes
