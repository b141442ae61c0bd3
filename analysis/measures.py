"""One value a run: what a column of a table says of one run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from analysis.load import Runs
from analysis.runfiles import EPISODE_COLUMNS
from analysis.spec import ColumnSpec, SpecError

EPISODE_METRICS = {
    "success": ("success", 100.0, "episodes"),
    "score": ("score", 1.0, "episodes"),
    "turns": ("steps", 1.0, "episodes"),
    "invalid": ("invalid", 100.0, "steps"),
}
REDUCTIONS = ("mean", "last", "max", "sum")
PRINTED = "printed"  # a column that only published numbers have


@dataclass(frozen=True)
class Value:
    """The value of one run, the episodes behind it and the moment it is of; None has a reason."""

    number: float | None
    episodes: int | None = None
    when: str = ""
    reason: str = ""


@dataclass(frozen=True)
class _Tally:
    """Sums over the episodes of one kind in one evaluation."""

    episodes: int
    sums: dict[str, float]


class Measures:
    """Values of runs, from sums that are made once for the whole set."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def value(self, run: str, column: ColumnSpec, name: str | None) -> Value:
        """The value of `column` for one run; `name` is the evaluation list. SpecError for an unknown metric."""
        if column.metric == PRINTED:
            return Value(None, reason="a figure that only the paper prints")
        if column.metric.startswith("log."):
            return self._logged(run, column)
        if column.metric not in EPISODE_METRICS and not column.metric.startswith("episode."):
            known = ", ".join([*EPISODE_METRICS, "episode.<column>", "log.<column>[.mean|last|max|sum]"])
            raise SpecError(f"column {column.header!r}: no metric {column.metric!r} (known: {known})")
        if name is None:
            return Value(None, reason=f"no evaluation list is named for {column.benchmark or 'this benchmark'}")
        return self._scored(run, column, name)

    def lists(self, run: str) -> list[str]:
        """Evaluation lists that a run has played."""
        return sorted(self._tallies.get(run, {}))

    # --- from episodes

    def _scored(self, run: str, column: ColumnSpec, name: str) -> Value:
        moments = self._tallies.get(run, {}).get(name)
        if not moments:
            return Value(None, reason=f"never evaluated on {name}")
        when = _moment(moments, column.when)
        if when is None:
            return Value(
                None, reason=f"no evaluation of {name} {'before' if column.when == 'before' else 'after'} training"
            )
        kinds = moments[when]
        absent = [kind for kind in column.kinds if kind not in kinds]
        if absent:
            why = self._absent_data.get(run, {})
            reasons = [f"{kind} ({why[kind]})" if kind in why else kind for kind in absent]
            return Value(None, reason=f"no task of kind {', '.join(reasons)} on {name}")
        tallies = [kinds[kind] for kind in column.kinds] if column.kinds else list(kinds.values())
        episodes = sum(tally.episodes for tally in tallies)
        parts = [tallies] if column.mean == "pooled" else [[tally] for tally in tallies]
        means = [_mean(part, column.metric) for part in parts]
        if any(mean is None for mean in means):
            return Value(None, reason=f"{column.metric} was not recorded of every episode on {name}")
        return Value(column.scale * float(np.mean([m for m in means if m is not None])), episodes, when)

    @cached_property
    def _tallies(self) -> dict[str, dict[str, dict[str, dict[str, _Tally]]]]:
        """run -> list -> moment -> kind -> sums."""
        episodes = self._runs.episodes
        found: dict[str, dict[str, dict[str, dict[str, _Tally]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(dict))
        )
        if episodes.empty:
            return found
        numbers = _numbers(episodes)
        keys = [episodes[key] for key in ("run", "list", "when", "kind")]
        grouped = numbers.groupby(keys, sort=False)
        sums, sizes = grouped.sum(min_count=1), grouped.size()
        gaps = [column for column in numbers if numbers[column].isna().any()]
        if gaps:  # a mean over some of the episodes is no mean
            sums[gaps] = sums[gaps].where(grouped[gaps].count().eq(sizes, axis=0))
        names = list(sums.columns)
        for (run, name, when, kind), size, row in zip(sums.index, sizes, sums.to_numpy(), strict=True):
            found[run][name][when][kind] = _Tally(int(size), dict(zip(names, row.tolist(), strict=True)))
        return found

    @cached_property
    def _absent_data(self) -> dict[str, dict[str, str]]:
        """run -> data set -> why a benchmark has no data of it, as the run's record says."""
        frame = self._runs.runs
        records = {run: json.loads(data).get("missing") for run, data in zip(frame["run"], frame["data"], strict=True)}
        return {run: missing for run, missing in records.items() if isinstance(missing, dict)}

    # --- from the log of updates

    def _logged(self, run: str, column: ColumnSpec) -> Value:
        name, _, reduction = column.metric.removeprefix("log.").rpartition(".")
        if reduction not in REDUCTIONS:
            name, reduction = column.metric.removeprefix("log."), "mean"
        rows = self._by_run.get(run)
        if rows is None or name not in self._runs.metrics or not len(rows):
            return Value(None, reason=f"{name} was not logged")
        values = self._runs.metrics[name].to_numpy(dtype=np.float64, na_value=np.nan)[rows]
        values = values[np.isfinite(values)]
        if not len(values):
            return Value(None, reason=f"{name} was not logged")
        reduced = {"mean": values.mean(), "last": values[-1], "max": values.max(), "sum": values.sum()}
        return Value(column.scale * float(reduced[reduction]))

    @cached_property
    def _by_run(self) -> dict[str, np.ndarray]:
        """Rows of `metrics` of each run, in order of updates."""
        return dict(self._runs.metrics.groupby("run", sort=False).indices)


def _numbers(episodes: pd.DataFrame) -> pd.DataFrame:
    """What is added up: the fixed columns, and what numbers a benchmark records itself."""
    numbers = pd.DataFrame(
        {
            "success": episodes["success"].astype(float),
            "score": episodes["score"].astype(float),
            "steps": episodes["steps"].astype(float),
            "invalid": (episodes["format_invalid"] + episodes["inadmissible"]).astype(float),
        }
    )
    for name in episodes.columns.difference(EPISODE_COLUMNS):
        if pd.api.types.is_numeric_dtype(episodes[name]) or _yes_or_no(episodes[name]):
            numbers[name] = episodes[name].astype(float)
    return numbers


def _yes_or_no(values: pd.Series) -> bool:
    """Whether a column that other benchmarks' episodes lack holds booleans (with None it has no dtype of its own)."""
    first = values.first_valid_index() if values.dtype == object else None
    return first is not None and isinstance(values[first], bool)


def _moment(moments: dict[str, dict[str, _Tally]], when: str) -> str | None:
    """The key of the moment meant by `last`, `best` (most episodes solved; the first of equals) or `before`."""
    if when == "before":
        return "before" if "before" in moments else None
    if when == "last":
        return "after" if "after" in moments else None
    trained = [moment for moment in sorted(moments, key=lambda m: (m == "after", m)) if moment != "before"]
    return max(trained, key=lambda moment: _mean(list(moments[moment].values()), "success") or 0.0, default=None)


def _mean(tallies: Sequence[_Tally], metric: str) -> float | None:
    """Sum over the tallies by their episodes (or steps); None where a sum is missing."""
    column, scale, per = EPISODE_METRICS.get(metric) or (metric.removeprefix("episode."), 1.0, "episodes")
    values = [tally.sums.get(column, np.nan) for tally in tallies]
    count = sum(tally.episodes if per == "episodes" else tally.sums["steps"] for tally in tallies)
    total = float(np.sum(values))
    return scale * total / count if count and np.isfinite(total) else None
