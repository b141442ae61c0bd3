"""A comparison of estimators as tables: terminal and Markdown, CSV files, strict JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare import Comparison
from analysis.group_statistics import DEGREES, SIZES
from analysis.render import Cell, Column, Panel, Table, aligned_table, pipe_table

_COLUMNS = (
    Column("mean", "mean", "", 3, signed=True),
    Column("std", "spread", "", 3),
    Column("zero", "zero %", "%"),
    Column("decisive", "on decisive %", "%"),
    Column("positive_in_failed", "+ in failed %", "%"),
    Column("negative_in_solved", "- in solved %", "%"),
    Column("milliseconds", "ms", "ms", None),
)
_SHARES = ("zero", "decisive", "positive_in_failed", "negative_in_solved")
_REASONS = {
    "decisive": "no credit given at all",
    "positive_in_failed": "no failed trajectory",
    "negative_in_solved": "no solved trajectory",
}
_WORDS = {
    "nodes": "states a group",
    "merge_rate": "merge rate (1 - states acted in / steps)",
    "revisits": "steps in a state seen before by the trajectory",
    "branching": "distinct actions tried a state",
    "choice_states": "states with two actions or more",
    "cyclic_states": "states on a cycle",
    "group_size": "steps a state (state group size)",
    "degree": "information propagation degree, final states as sinks",
    "degree_dedicated": "information propagation degree, shared sinks",
    "degree_visits": "information propagation degree, visits alone (GiGPO)",
}
_PERCENT = ("merge_rate", "revisits", "choice_states", "cyclic_states")


def table(comparison: Comparison, name: str) -> Table:
    """Measures of each estimator and how far they agree in pairs."""
    labels = comparison.labels
    pairs = tuple(Column(label, label, "", 2) for label in labels)
    agreement = tuple(Column(f"sign:{c.key}", c.header, "") for c in pairs)
    rank = tuple(Column(f"rank:{c.key}", c.header, "", 2, signed=True) for c in pairs)
    cells = _measures(comparison)
    cells |= _pairs(labels, 100.0 * comparison.agreement, "sign", "no step gets credit from both")
    cells |= _pairs(labels, comparison.rank, "rank", "gives all steps the same credit")
    decisive = 100.0 * comparison.decisive.mean()
    panels = (
        Panel("Credit", _COLUMNS, labels, f"{decisive:.1f} % of the steps are decisive"),
        Panel("Sign agreement, %", agreement, labels, "of the steps that both give credit"),
        Panel("Rank correlation", rank, labels, "Spearman, over all steps"),
    )
    notes = (
        "zero: share of steps without credit. On decisive steps: share of all |credit| on steps from states where the "
        "group tried several actions with unlike success. + in failed, - in solved: share of the steps of failed "
        "(solved) trajectories with positive (negative) credit.",
    )
    batch = comparison.batch
    layout = batch.layout
    solved = int(batch.column("success")[layout.order[layout.start]].sum())
    title = f"{name}: {batch.rows} steps, {layout.trajectories} trajectories ({solved} solved), {layout.groups} groups"
    return Table(title, panels, cells, notes)


def _measures(comparison: Comparison) -> dict[tuple[str, str], Cell]:
    cells = {}
    for credit in comparison.credits:
        for column in _COLUMNS:
            value = 1000.0 * credit.seconds if column.key == "milliseconds" else getattr(credit, column.key)
            if value is not None and column.key in _SHARES:
                value *= 100.0
            cells[credit.label, column.key] = Cell(value, reason=_REASONS.get(column.key, ""))
    return cells


def _pairs(labels: Sequence[str], values: np.ndarray, kind: str, reason: str) -> dict[tuple[str, str], Cell]:
    return {
        (row, f"{kind}:{column}"): Cell(None, reason=reason) if np.isnan(values[i, j]) else Cell(float(values[i, j]))
        for i, row in enumerate(labels)
        for j, column in enumerate(labels)
    }


def _statistics(comparison: Comparison) -> tuple[list[list[str]], list[list[str]]]:
    """Two grids: the statistics of the graphs, and how steps are spread over sizes."""
    statistics = comparison.statistics
    layout = comparison.batch.layout
    grid = [["trajectory graphs", "all steps", "lowest group", "highest group"]]
    sizes = statistics.groups["trajectories"]
    mean = f"{layout.trajectories / layout.groups:.1f}"
    grid.append(["trajectories a group", mean, str(sizes.min()), str(sizes.max())])
    for key, words in _WORDS.items():
        of_groups = statistics.groups[key]
        values = (statistics.overall[key], of_groups.min(), of_groups.max())
        grid.append([words, *(f"{100 * v:.1f} %" if key in _PERCENT else f"{v:.2f}" for v in values)])
    grid.append(["groups with a cycle", f"{100 * statistics.cycles:.1f} %", "", ""])
    bins = [str(low) if low == high else f"{low}-{high}" if high else f"{low}+" for low, high in SIZES]
    spread = [["share of steps, %", *bins]]
    for key in ("group_size", *DEGREES):
        spread.append([_WORDS[key], *(f"{100 * share:.1f}" for share in statistics.shares[key])])
    return grid, spread


def terminal(comparison: Comparison, name: str, width: int = 100) -> str:
    """Everything but single groups and steps, for a terminal."""
    grids = _statistics(comparison)
    return "\n\n".join([table(comparison, name).render_terminal(width).rstrip("\n"), *map(aligned_table, grids)]) + "\n"


def markdown(comparison: Comparison, name: str) -> str:
    """The same as Markdown."""
    grids = "\n\n".join(map(pipe_table, _statistics(comparison)))
    return f"{table(comparison, name).markdown()}\n### Trajectory graphs\n\n{grids}\n"


def steps_terminal(frame: pd.DataFrame, labels: Sequence[str], width: int = 100) -> str:
    """Steps of `step_view`, a table a trajectory; `*` marks decisive steps, `!` invalid actions."""
    blocks = []
    for trajectory, rows in frame.groupby("trajectory", sort=False):
        outcome = "solved" if rows["success"].iloc[0] else "not solved"
        grid = [["step  action", *labels]]
        for row in rows.to_dict("records"):
            marks = ("*" if row["decisive"] else " ") + ("!" if not row["valid"] else " ")
            action = textwrap.shorten(" ".join(row["action"].split()), 40, placeholder=" …")
            grid.append([f"{row['step']:>3} {marks} {action}", *(_signed(row[label]) for label in labels)])
        blocks.append(f"trajectory {trajectory} ({outcome})\n{_fitted(grid, width)}")
    return "\n\n".join(blocks) + "\n\n* decisive step   ! invalid action\n"


def _fitted(grid: list[list[str]], width: int) -> str:
    """The grid cut to the width: further columns go on below."""
    parts, begin = [], 1
    while begin < len(grid[0]):
        end = begin + 1
        while end < len(grid[0]) and _width([[row[0], *row[begin : end + 1]] for row in grid]) <= width:
            end += 1
        parts.append(aligned_table([[row[0], *row[begin:end]] for row in grid]))
        begin = end
    return "\n\n".join(parts)


def _width(grid: list[list[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*grid, strict=True)) - 2


def _signed(value: float) -> str:
    text = f"{value:+.2f}"
    return "0" if float(text) == 0.0 else text


def credits_csv(comparison: Comparison) -> str:
    """One line an estimator: its measures."""
    return _csv(pd.DataFrame([vars(credit) for credit in comparison.credits]))


def pairs_csv(comparison: Comparison) -> str:
    """One line a pair of estimators: agreement of signs and rank correlation, empty where not defined."""
    labels = comparison.labels
    rows = [
        {
            "first": a,
            "second": b,
            "sign_agreement": comparison.agreement[i, j],
            "rank_correlation": comparison.rank[i, j],
        }
        for i, a in enumerate(labels)
        for j, b in enumerate(labels)
        if i < j
    ]
    return _csv(pd.DataFrame(rows, columns=["first", "second", "sign_agreement", "rank_correlation"]))


def groups_csv(comparison: Comparison) -> str:
    """One line a task group: its graph statistics."""
    return _csv(comparison.statistics.groups)


def steps_csv(frame: pd.DataFrame) -> str:
    """One line a step of `step_view`."""
    return _csv(frame)


def _csv(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False, lineterminator="\n"))


def record(comparison: Comparison, name: str) -> dict[str, Any]:
    """Everything but single steps, as strict JSON's types; null where something is not defined."""
    layout = comparison.batch.layout
    statistics = comparison.statistics
    return {
        "schema": 1,
        "rollouts": name,
        "rows": layout.rows,
        "trajectories": layout.trajectories,
        "groups": layout.groups,
        "decisive_rows": float(comparison.decisive.mean()),
        "estimators": [vars(credit) for credit in comparison.credits],
        "sign_agreement": _matrix(comparison.agreement),
        "rank_correlation": _matrix(comparison.rank),
        "graphs": {**statistics.overall, "groups_with_a_cycle": statistics.cycles},
        "shares": {"bins": [list(size) for size in SIZES], **{k: list(v) for k, v in statistics.shares.items()}},
        "by_group": statistics.groups.to_dict("records"),
    }


def _matrix(values: np.ndarray) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in values]
