"""Stored rollouts of runs, and what their graphs look like in the course of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from algorithms import RolloutBatch
from analysis.comparable import method_order, trains
from analysis.group_statistics import GroupStatistics, group_statistics
from analysis.load import Runs

MOMENTS = 5  # updates of a run that are looked at, evenly spaced


@dataclass(frozen=True)
class Moment:
    """The graphs of one update's rollouts of one run."""

    method: str
    run: str
    seed: int
    update: int
    statistics: GroupStatistics


def rollout_files(run_folder: Path) -> dict[int, Path]:
    """Update -> file of its stored rollouts, of the newest attempt that has it."""
    attempts = [path for path in (run_folder / "attempts").glob("*") if path.name.isdigit()]
    found = {}
    for attempt in sorted(attempts, key=lambda path: int(path.name)):
        for path in (attempt / "rollouts").glob("*.parquet"):
            if path.stem.isdigit():
                found[int(path.stem)] = path
    return dict(sorted(found.items()))


def first_with_rollouts(
    runs: Runs, methods: pd.Series
) -> tuple[dict[str, tuple[str, int, dict[int, Path]]], list[str]]:
    """Per method the first run with stored rollouts, finished ones first: (run, seed, files); and the methods that
    have none."""
    frame = runs.runs.assign(method=methods, order=(runs.runs["state"] != "done").astype(int))
    frame = frame[frame["method"].map(trains).astype(bool)].sort_values(["order", "seed"], kind="stable")
    found: dict[str, tuple[str, int, dict[int, Path]]] = {}
    for row in frame.itertuples():
        files = rollout_files(Path(row.path)) if row.method not in found else {}
        if files:
            found[row.method] = (row.run, row.seed, files)
    order = method_order(frame["method"])
    return {name: found[name] for name in order if name in found}, [name for name in order if name not in found]


def moments(runs: Runs, methods: pd.Series, count: int = MOMENTS) -> tuple[list[Moment], list[str]]:
    """Graph statistics at `count` evenly spaced updates of one run a method, and the methods without rollouts."""
    chosen, without = first_with_rollouts(runs, methods)
    found = []
    for method, (run, seed, files) in chosen.items():
        matching = runs.configs[run]["protocol"].get("state_matching", "exact")
        for update in spaced(list(files), count):
            batch = RolloutBatch.read_parquet(files[update])
            found.append(Moment(method, run, seed, update, group_statistics(batch, matching)))
    return found, without


def spaced(values: Sequence[int], count: int) -> list[int]:
    """At most `count` of the values, evenly spaced, the first and the last among them."""
    if len(values) <= count:
        return list(values)
    places = np.linspace(0, len(values) - 1, count).round().astype(int)
    return [values[place] for place in dict.fromkeys(places.tolist())]
