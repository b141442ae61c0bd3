"""What the report's page draws, as strict JSON: curves, timing, subtasks, graphs and runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from analysis.commits import short_commit
from analysis.comparable import ComparisonError, comparable_sets, method_names
from analysis.figure_scores import final_scores
from analysis.figure_states import case_views
from analysis.figure_training import mean_seconds, stage_seconds
from analysis.figures import Curve, looks, setting, training_curves
from analysis.load import Runs, select
from analysis.scores import list_names

MOST_CONFIGS = 300  # runs whose configs are on the page; of more, only the links
POINTS = 400  # of a curve


def report_data(runs: Runs, page: Path) -> dict[str, Any]:
    """Everything below the tables. Links to configs are relative to the folder of `page`."""
    sets = [_set(select(runs, ids)) for ids in comparable_sets(runs)]
    return {"sets": sets, "runs": _runs(runs, page)}


def _set(runs: Runs) -> dict[str, Any]:
    methods = method_names(runs)
    curves, left_out = training_curves(runs, methods=methods)
    turns, _ = training_curves(runs, "turns", 1.0, methods)
    seconds, _ = stage_seconds(runs, methods)
    names = list(seconds)
    views, _ = case_views(runs, methods)
    return {
        "label": setting(runs),
        "curves": _curves(curves),
        "turns": _curves(turns),
        "left_out": left_out,
        "timing": [
            {"label": name, "color": _ink(look), "seconds": means}
            for (name, means), look in zip(mean_seconds(seconds).items(), looks(names), strict=True)
        ],
        "subtasks": [_subtasks(runs, methods, name) for name in list_names(runs)],
        "views": [{"method": method, "update": update, "view": view.to_json()} for method, update, view in views],
    }


def _curves(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    found = []
    for curve, look in zip(curves, looks([curve.method for curve in curves]), strict=True):
        keep = np.unique(np.linspace(0, len(curve.updates) - 1, POINTS).round().astype(int))
        x = {name: getattr(curve, name)[keep] for name in ("updates", "episodes", "seconds")}
        found.append(
            {
                "label": f"{curve.method} (n={curve.seeds}{'' if curve.finished else ', unfinished'})",
                "color": _ink(look),
                "dash": "" if look["linestyle"] == "-" else " ".join(f"{3 * part:g}" for part in look["linestyle"][1]),
                "x": {name: _plain(values) for name, values in x.items() if np.isfinite(values).all()},
                **{name: _plain(getattr(curve, name)[keep]) for name in ("mean", "low", "high")},
            }
        )
    return found


def _ink(look: dict[str, Any]) -> str:
    """A method's color; near black becomes the page's own ink, which a dark page needs."""
    color = str(look["color"])
    return "var(--text)" if color == "#262626" else color


def _plain(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _subtasks(runs: Runs, methods: pd.Series, name: str) -> dict[str, Any]:
    try:
        scores = final_scores(runs, methods, name)
    except ComparisonError:  # the page says so in the place of the table
        return {"name": name, "kinds": [], "bars": []}
    bars = []
    for (method, array), look in zip(scores.by_method.items(), looks(list(scores.by_method)), strict=True):
        errors = _plain(array.std(axis=0, ddof=1)) if len(array) > 1 else None
        label = f"{method} (n={len(array)})"
        bars.append({"label": label, "color": _ink(look), "values": _plain(array.mean(axis=0)), "errors": errors})
    return {"name": name, "kinds": [kind or "all tasks" for kind in scores.kinds], "bars": bars}


def _runs(runs: Runs, page: Path) -> list[dict[str, Any]]:
    with_configs = len(runs.runs) <= MOST_CONFIGS
    rows = []
    for method, row in zip(method_names(runs), runs.runs.itertuples(), strict=True):
        config = yaml.safe_dump(dict(runs.configs[row.run]), sort_keys=False) if with_configs else ""
        target = Path(row.path) / "config.yaml"
        rows.append(
            {
                "id": row.run, "method": method, "seed": int(row.seed), "state": row.state, "reason": row.reason,
                "benchmark": row.benchmark, "model": row.model, "protocol": row.protocol,
                "commit": short_commit(row.commit), "config": config,
                "href": Path(os.path.relpath(target.resolve(), page.resolve().parent)).as_posix(),
            }
        )  # fmt: skip
    return rows


def summary(runs: Runs) -> str:
    """One line: how many runs, in which states."""
    if not len(runs.runs):
        return "No runs yet."
    states = runs.runs["state"].value_counts()
    return f"{len(runs.runs)} runs: {', '.join(f'{count} {state}' for state, count in states.items())}."
