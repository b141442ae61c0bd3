"""Where each row sits: groups and trajectories as integers, rows sorted by (group, trajectory, step)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from algorithms.columns import RolloutError


@dataclass(frozen=True, eq=False)
class Layout:
    """Sorted integer view of a batch. Arrays of length [rows] below are in sorted order unless said otherwise.

    order        [rows] input row of each sorted row
    group        [rows] group number, 0..groups-1, non-decreasing
    trajectory   [rows] trajectory number over the whole batch, 0..trajectories-1, non-decreasing
    step         [rows] 0-based place in the trajectory
    length       [rows] rows T of the trajectory
    start        [trajectories] first sorted row of each trajectory
    """

    order: np.ndarray
    group: np.ndarray
    trajectory: np.ndarray
    step: np.ndarray
    length: np.ndarray
    start: np.ndarray
    groups: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.order)

    @property
    def trajectories(self) -> int:
        """Number of trajectories."""
        return len(self.start)

    @property
    def last(self) -> np.ndarray:
        """[rows] bool, the final row of each trajectory."""
        return self.step == self.length - 1

    @classmethod
    def build(cls, columns: Mapping[str, np.ndarray]) -> Layout:
        """Sort and check the columns `group`, `trajectory`, `step`, `success` and, where given, `task`."""
        group, groups = encode_ids(columns["group"])
        name, names = encode_ids(columns["trajectory"])
        trajectory, trajectories = compact(group * names + name, groups * names)
        step = columns["step"]
        lengths = np.bincount(trajectory, minlength=trajectories)
        start = np.cumsum(lengths) - lengths
        order = _sorted_rows(columns, trajectory, step, lengths, start)
        _check_success(columns, trajectory, lengths)
        if "task" in columns:
            _check_tasks(columns, group, groups)
        sorted_trajectory = trajectory[order]
        return cls(order, group[order], sorted_trajectory, step[order], lengths[sorted_trajectory], start, groups)

    def unsort(self, values: np.ndarray) -> np.ndarray:
        """Values [rows] in sorted order, put back in input order."""
        result = np.empty_like(values)
        result[self.order] = values
        return result


def encode_ids(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Integers 0..n-1 for the distinct values of a column (str objects or int64), and n."""
    if values.dtype == object:
        codes, table = encode_text(values)
        return codes, len(table)
    distinct, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64, copy=False), len(distinct)


def encode_text(values: Iterable[Any]) -> tuple[np.ndarray, dict[Any, int]]:
    """Integers by first appearance, and the table text -> integer. One hash a value; the loop runs in C."""
    table: defaultdict[Any, int] = defaultdict(count().__next__)
    codes = np.fromiter(map(table.__getitem__, values), dtype=np.int64)
    return codes, table


def compact(codes: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """Renumber codes in 0..size-1 to 0..n-1 without gaps, keeping their order; returns (codes, n)."""
    if size > 8 * len(codes) + 1024:
        distinct, inverse = np.unique(codes, return_inverse=True)
        return inverse, len(distinct)
    present = np.zeros(size, dtype=bool)
    present[codes] = True
    number = np.cumsum(present) - 1
    return number[codes], int(number[-1]) + 1


def joint(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers 0..n-1 of the distinct pairs (first[i], second[i]) of non-negative integers, and n; all empty give 0."""
    if len(first) == 0:
        return np.empty(0, dtype=np.int64), 0
    width = int(second.max()) + 1
    return compact(first * width + second, (int(first.max()) + 1) * width)


def _sorted_rows(
    columns: Mapping[str, np.ndarray], trajectory: np.ndarray, step: np.ndarray, lengths: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Input row of each sorted row. Steps 0..T-1 say where a row goes, so nothing is compared."""
    if np.all(step < lengths[trajectory]):
        order = np.full(len(step), -1, dtype=np.int64)
        order[start[trajectory] + step] = np.arange(len(step))
        if np.all(order >= 0):
            return order
    raise _step_error(columns, trajectory, step)


def _step_error(columns: Mapping[str, np.ndarray], trajectory: np.ndarray, step: np.ndarray) -> RolloutError:
    order = np.lexsort((step, trajectory))
    first = np.r_[True, np.diff(trajectory[order]) != 0]
    begin = np.flatnonzero(first)
    expected = np.arange(len(order)) - begin[np.cumsum(first) - 1]
    bad = int(np.argmax(step[order] != expected))
    row, want, got = int(order[bad]), int(expected[bad]), int(step[order[bad]])
    problem = f"step {got} appears twice" if got < want else f"step {want} is missing, found {got}"
    where = f"trajectory {_shown(columns['trajectory'][row])} of group {_shown(columns['group'][row])}"
    return RolloutError(f"column 'step', row {row}: {problem} in {where}; steps must be 0, 1, ..., T-1")


def _check_success(columns: Mapping[str, np.ndarray], trajectory: np.ndarray, lengths: np.ndarray) -> None:
    solved = np.bincount(trajectory, weights=columns["success"], minlength=len(lengths))
    mixed = (solved > 0) & (solved < lengths)
    if mixed.any():
        rows = np.flatnonzero(trajectory == np.argmax(mixed))
        success = columns["success"][rows]
        row = int(rows[np.argmax(success != success[0])])
        raise RolloutError(
            f"column 'success', row {row}: {bool(columns['success'][row])} but row {rows[0]} of the same trajectory "
            f"{_shown(columns['trajectory'][row])} says {bool(success[0])}; success belongs to the trajectory"
        )


def _check_tasks(columns: Mapping[str, np.ndarray], group: np.ndarray, groups: int) -> None:
    task, _ = encode_ids(columns["task"])
    seen = np.zeros(groups, dtype=np.int64)
    seen[group[::-1]] = task[::-1]  # the first row of each group wins
    bad = seen[group] != task
    if bad.any():
        row = int(np.argmax(bad))
        first = int(np.argmax(group == group[row]))
        raise RolloutError(
            f"column 'task', row {row}: group {_shown(columns['group'][row])} holds two tasks, "
            f"{_shown(columns['task'][first])} (row {first}) and {_shown(columns['task'][row])}; a group is one task"
        )


def _shown(identifier: Any) -> str:
    """An id as it was given, not as numpy prints its own integers."""
    return repr(identifier.item() if isinstance(identifier, np.integer) else identifier)
