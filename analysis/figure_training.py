"""Figures from the log of updates: turns an episode, and seconds an update by stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.comparable import method_order, trains
from analysis.figures import caption, draw_curves, finish, looks, new_figure, not_drawn, setting, training_curves
from analysis.load import Runs
from analysis.published import published

STAGES = {
    "rollout": "rollout",
    "generation": "  generation",
    "environment": "  environment",
    "advantage": "credit assignment",
    "old_logprob": "log-probabilities",
    "update": "gradient update",
}
_PRINTED = {  # stages of the published runtimes -> ours
    "rollout": "rollout", "update": "update", "old_logprob": "old_logprob", "advantage": "advantage",
    "graph_construction": "advantage", "step_advantage": "advantage",
}  # fmt: skip


def average_turns(runs: Runs, methods: pd.Series) -> tuple[Figure, list[str]]:
    """Mean environment steps of an episode of the training rollouts against updates (GRAFT, Figure 3), failures
    included; a line a method."""
    curves, left_out = training_curves(runs, "turns", 1.0, methods)
    figure = new_figure(5.2, 3.6)
    axes = figure.subplots()
    draw_curves(axes, curves, "updates")
    axes.set(xlabel="update", ylabel="steps an episode")
    finish(figure, [axes], caption(runs, curves, left_out))
    return figure, left_out


def stage_times(runs: Runs, methods: pd.Series) -> tuple[Figure, list[str]]:
    """Mean seconds of an update by stage (GRAFT, Figure 4; GraphHCA, Figure 4) on a logarithmic axis, one mark a
    method; the papers' runtimes as hollow marks where the runs are of their model and benchmark."""
    seconds, left_out = stage_seconds(runs, methods)
    figure = new_figure(6.4, 0.42 * len(STAGES) + 1.9)
    axes = figure.subplots()
    order = list(method_order(seconds))
    for place, (method, look) in enumerate(zip(order, looks(order), strict=True)):
        shift = (place - (len(order) - 1) / 2) * 0.7 / max(len(order), 1)
        _marks(axes, method, seconds[method], look["color"], look["marker"], shift)
    printed = _published_seconds(runs)
    for method, values in printed.items():
        rows = [(list(STAGES).index(stage), value) for stage, value in values.items()]
        axes.plot(
            [value for _, value in rows], [row for row, _ in rows], linestyle="none", marker="d", markersize=7,
            markerfacecolor="none", markeredgecolor="0.35", label=f"{method} (published)",
        )  # fmt: skip
    axes.set_yticks(range(len(STAGES)), list(STAGES.values()))
    axes.invert_yaxis()
    if axes.has_data():
        axes.set_xscale("log")
    axes.set(xlabel="seconds an update (logarithmic)")
    text = f"{setting(runs)}. Means over n finished seeds and their updates; bars: lowest to highest seed."
    if printed:
        text += " Published runtimes are of other machines."
    finish(figure, [axes], text + not_drawn(left_out))
    return figure, left_out


def stage_seconds(runs: Runs, methods: pd.Series) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Per method a frame [seeds, stages] of mean seconds an update of its finished runs, and the runs left out."""
    frame = runs.runs.assign(method=methods)
    frame = frame[frame["method"].map(trains).astype(bool)]
    columns = {f"timing/{stage}": stage for stage in STAGES}
    logged = runs.metrics.reindex(columns=["run", *columns])
    means = logged.astype(dict.fromkeys(columns, float)).groupby("run").mean().rename(columns=columns)
    known = set(means.index[means.notna().any(axis=1)])
    found, left_out = {}, []
    for method in method_order(frame["method"]):
        rows = frame[frame["method"] == method]
        done = [run for run in rows.loc[rows["state"] == "done", "run"] if run in known]
        if done:
            found[method] = means.loc[done]
        left_out += [
            f"{method} seed {row.seed} ({'no timing' if row.state == 'done' else row.state})"
            for row in rows[~rows["run"].isin(done)].itertuples()
        ]
    return found, left_out


def _marks(axes: Axes, method: str, seconds: pd.DataFrame, color: str, marker: str, shift: float) -> None:
    means, place = seconds.mean(), np.arange(len(STAGES)) + shift
    error = np.abs(np.stack([means - seconds.min(), seconds.max() - means]))
    axes.errorbar(
        means, place, xerr=error, fmt=marker, color=color, markersize=5, linewidth=1.2, markeredgecolor="white",
        markeredgewidth=0.5, label=f"{method} (n={len(seconds)})",
    )  # fmt: skip


def _published_seconds(runs: Runs) -> dict[str, dict[str, float]]:
    """Method -> stage -> seconds, of the model and benchmark of these runs."""
    config = next(iter(runs.configs.values()))
    model = Path(str(config["model"].get("path", ""))).name
    found: dict[str, dict[str, float]] = {}
    for paper in ("GraphHCA", "GraphGPO", "G2PO"):
        for (benchmark, printed_model, method, metric), number in published(paper, "runtime").items():
            stage = _PRINTED.get(metric.removeprefix("seconds/"))
            if stage and benchmark == config["benchmark"]["name"] and printed_model == model:
                stages = found.setdefault(method, {})
                stages[stage] = stages.get(stage, 0.0) + number.value
    return found


def mean_seconds(seconds: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, float]]:
    """Method -> stage -> mean seconds over seeds; stages that weren't timed are left out."""
    return {method: {k: float(v) for k, v in frame.mean().dropna().items()} for method, frame in seconds.items()}
