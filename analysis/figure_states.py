"""Figures of the states that rollouts share: node group sizes, information propagation degree, case graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from algorithms import COMMON_OPTIONS, RolloutBatch
from analysis.figures import caption, draw_curves, finish, looks, new_figure, not_drawn, setting, training_curves
from analysis.graphs import GraphView, draw, graph_view
from analysis.group_statistics import SIZES
from analysis.load import Runs
from analysis.stored_rollouts import Moment, first_with_rollouts, moments


def group_size_dynamics(runs: Runs, methods: pd.Series) -> tuple[Figure, list[str]]:
    """Steps a state in the course of training (GRAFT, Figure 5): how many steps the mean of a state is taken over.
    From the log of updates, so every run has it."""
    sized = runs.metrics.reindex(
        columns=list(dict.fromkeys([*runs.metrics.columns, "advantage/rows", "advantage/nodes"]))
    )
    sized = sized.assign(group_size=sized["advantage/rows"].astype(float) / sized["advantage/nodes"].astype(float))
    with_size = Runs(runs.runs, sized, runs.evaluations, runs.episodes, runs.configs)
    curves, left_out = training_curves(with_size, "group_size", 1.0, methods)
    figure = new_figure(5.2, 3.6)
    axes = figure.subplots()
    draw_curves(axes, curves, "updates")
    axes.set(xlabel="update", ylabel="steps a state (node group size)")
    finish(figure, [axes], caption(runs, curves, left_out))
    return figure, left_out


def group_size_distribution(runs: Runs, methods: pd.Series) -> tuple[Figure, list[str]]:
    """Share of steps in states of 1, 2, 3-4, ... steps (GRAFT, Figure 6), at the first and the last stored update."""
    return _distribution(runs, methods, "group_size", "steps in the same state")


def propagation_dynamics(runs: Runs, methods: pd.Series) -> tuple[Figure, list[str]]:
    """Information propagation degree in the course of training (GRAFT, Figure 7 and appendix D.3): trajectories whose
    outcome enters the value of a step's state, mean over steps; through graphs, and within plain state groups."""
    found, without = moments(runs, methods)
    figure = new_figure(6.4, 3.6)
    left, right = figure.subplots(1, 2, sharey=True)
    names = list(dict.fromkeys(moment.method for moment in found))
    for name, look in zip(names, looks(names), strict=True):
        own = [moment for moment in found if moment.method == name]
        for axes, column in ((left, "degree"), (right, "degree_visits")):
            values = [moment.statistics.overall[column] for moment in own]
            axes.plot([moment.update for moment in own], values, label=name, linewidth=1.6, markersize=4.5, **look)
    left.set(xlabel="update", ylabel="trajectories", title="through the graph")
    right.set(xlabel="update", title="same state only")
    left_out = [f"{name} (no stored rollouts)" for name in without]
    finish(figure, [left, right], _sampled(runs, found) + not_drawn(left_out))
    return figure, left_out


def propagation_distribution(runs: Runs, methods: pd.Series) -> tuple[Figure, list[str]]:
    """Share of steps by information propagation degree (GRAFT, Figure 8), at the first and the last stored update."""
    return _distribution(runs, methods, "degree", "trajectories that a step's value draws on")


def _distribution(runs: Runs, methods: pd.Series, key: str, what: str) -> tuple[Figure, list[str]]:
    found, without = moments(runs, methods, count=2)
    names = list(dict.fromkeys(moment.method for moment in found))
    figure = new_figure(7.2, 0.34 * max(len(names), 2) + 1.8)
    panels = figure.subplots(1, 2, sharey=True)
    import seaborn  # here: it imports scipy.stats, which most figures need not wait for

    colors = seaborn.color_palette("cividis", len(SIZES))
    for place, axes in enumerate(panels):
        own = {name: _at_end([m for m in found if m.method == name], place) for name in names}
        _stacked(axes, {name: moment.statistics.shares[key] for name, moment in own.items()}, colors)
        updates = sorted({moment.update for moment in own.values()})
        axes.set(xlim=(0, 100), xlabel="% of steps", title=f"update {', '.join(map(str, updates))}" if updates else "")
    left_out = [f"{name} (no stored rollouts)" for name in without]
    finish(figure, panels, f"Colors: {what}. {_sampled(runs, found)}" + not_drawn(left_out), legend=False)
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=len(SIZES), frameon=False)
    return figure, left_out


def _at_end(own: list[Moment], place: int) -> Moment:
    """The first moment for place 0, the last for place 1."""
    return own[-place]


def _stacked(axes: Axes, shares: dict[str, tuple[float, ...]], colors: list[tuple[float, ...]]) -> None:
    start = np.zeros(len(shares))
    for column, (low, high) in enumerate(SIZES):
        name = f"{low}" if low == high else f"{low}+" if high is None else f"{low}–{high}"
        width = np.array([100 * values[column] for values in shares.values()])
        axes.barh(
            range(len(shares)), width, left=start, color=colors[column], label=name, edgecolor="white", height=0.7
        )
        start += width
    axes.set_yticks(range(len(shares)), list(shares))
    axes.set_ylim(max(len(shares), 1) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def _sampled(runs: Runs, found: list[Moment]) -> str:
    seeds = sorted({moment.seed for moment in found})
    which = f"of one run a method (seed {', '.join(map(str, seeds))})" if seeds else "of no run"
    return f"{setting(runs)}. From the stored rollouts {which}."


# --- case graphs ------------------------------------------------------------------------------------------------------


def case_views(
    runs: Runs, methods: pd.Series, only: str | None = None
) -> tuple[list[tuple[str, int, GraphView]], list[str]]:
    """(method, update, view) of the most telling task group of the last stored rollouts, under the run's own
    estimator and options; and the methods without rollouts."""
    chosen, without = first_with_rollouts(runs, methods)
    views = []
    for method, (run, _, files) in chosen.items():
        if only is None or method == only:
            update = max(files)
            config = runs.configs[run]
            shared = {name: config["protocol"][name] for name in COMMON_OPTIONS if name in config["protocol"]}
            options = {**(config["algorithm"].get("options") or {}), **shared}
            batch = RolloutBatch.read_parquet(files[update])
            views.append((method, update, graph_view(batch, None, config["algorithm"]["name"], **options)))
    return views, [f"{name} (no stored rollouts)" for name in without]


def draw_case(view: GraphView, stem: Path, formats: tuple[str, ...]) -> list[Path]:
    """A case graph (GRAFT, Figures 9 and 10) with a solved trajectory highlighted, or the first where none is."""
    solved = next((i for i, won in enumerate(view.success) if won), 0)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.parent / f"{stem.name}.{suffix}" for suffix in formats]
    for path in paths:
        draw(view, path, view.names[solved])
    return paths
