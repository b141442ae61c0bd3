"""Figures of a set of runs, as PNG and PDF. No display, no global matplotlib state, equal files for equal runs."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from algorithms import estimators
from analysis.comparable import INITIAL, check_comparable, method_names, method_order
from analysis.load import Runs
from analysis.scores import STAGES

_RC: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "pdf.fonttype": 42,  # text stays text
    "savefig.dpi": 200,
}
_COLORS = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#262626", "#56b4e9", "#ca9161")
_MARKERS = ("o", "s", "^", "D", "v", "X", "h", "*")
_DASHES: tuple[Any, ...] = (
    "-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (4, 1.5, 1, 1.5, 1, 1.5)), (0, (2, 1)), (0, (7, 2, 1, 2)),
)  # fmt: skip
_NO_DATES: dict[str, dict[str, Any]] = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None}}


@dataclass(frozen=True)
class Curve:
    """Success of one method while it trained, at the updates that all its `seeds` have: [updates] arrays, success in
    percent (mean, lowest and highest seed), `seconds` of training so far (mean over seeds; NaN when not timed)."""

    method: str
    seeds: int
    finished: bool
    updates: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seconds: np.ndarray


def learning_curves(runs: Runs, stem: str | Path) -> list[Path]:
    """Success of the training rollouts against updates and against seconds of training, one line a method.

    A line is the mean over seeds, the band spans the lowest and the highest seed (none with one seed). A method with
    finished runs is drawn from those alone; one without is drawn from what it has and called unfinished. Runs that
    are left out are named under the panels; a set without any metrics gives a figure that says so.

    Args:
        runs: from `load_runs`; all of one benchmark, model and protocol.
        stem: path of the files without suffix; its folder is made.

    Returns:
        [stem.png, stem.pdf], each written whole or not at all.

    Raises:
        ComparisonError: runs that can't stand in one figure.
    """
    check_comparable(runs, ())
    curves, left_out = training_curves(runs)
    with figure_style():
        figure = Figure(figsize=(7.4, 3.7), layout="constrained")
        FigureCanvasAgg(figure)
        _draw(figure, curves, _caption(runs, curves, left_out))
        return save_figure(figure, Path(stem))


def training_curves(runs: Runs) -> tuple[list[Curve], list[str]]:
    """The curves of all trained methods in table order, and one line for each run that no curve holds."""
    frame = runs.runs.assign(method=method_names(runs))
    frame = frame[frame["method"] != INITIAL]
    metrics = runs.metrics.reindex(columns=list(dict.fromkeys([*runs.metrics.columns, "success"])))
    with_success = set(metrics.loc[metrics["success"].notna(), "run"])
    curves, left_out = [], []
    for method in method_order(frame["method"]):
        rows = frame[frame["method"] == method]
        done = rows[rows["state"] == "done"]
        logged = [run for run in (done if len(done) else rows)["run"] if run in with_success]
        if logged:
            curves.append(_curve(method, metrics[metrics["run"].isin(logged)], finished=len(done) > 0))
        missing = rows[~rows["run"].isin(logged)]
        left_out += [f"{method} seed {r.seed} ({_absence(r.state)})" for r in missing.itertuples()]
    return curves, left_out


def _absence(state: str) -> str:
    return "no metrics" if state == "done" else state


def _curve(method: str, rows: pd.DataFrame, finished: bool) -> Curve:
    """Seeds side by side at their common updates; where one seed ends, the line ends."""
    success = 100.0 * rows.pivot(index="update", columns="run", values="success").dropna()
    seconds = _seconds(rows).unstack("run").loc[success.index].mean(axis=1, skipna=False)
    return Curve(
        method=method,
        seeds=success.shape[1],
        finished=finished,
        updates=success.index.to_numpy(),
        mean=success.mean(axis=1).to_numpy(),
        low=success.min(axis=1).to_numpy(),
        high=success.max(axis=1).to_numpy(),
        seconds=seconds.to_numpy(),
    )


def _seconds(rows: pd.DataFrame) -> pd.Series:
    """Seconds of training up to and with each update, by (update, run): the stages of an update, added up."""
    stages = rows.reindex(columns=[f"timing/{stage}" for stage in STAGES]).sum(axis=1, skipna=False)
    spent = stages.groupby(rows["run"]).transform(lambda seconds: seconds.cumsum(skipna=False))
    return pd.Series(spent.to_numpy(), index=pd.MultiIndex.from_frame(rows[["update", "run"]]))


@contextmanager
def figure_style() -> Iterator[None]:
    """The look of all figures, undone at the end."""
    with seaborn.axes_style("whitegrid", rc={"grid.color": "0.9"}), matplotlib.rc_context(_RC):
        yield


def _draw(figure: Figure, curves: list[Curve], caption: str) -> None:
    by_update, by_time = figure.subplots(1, 2, sharey=True)
    for curve, look in zip(curves, looks([curve.method for curve in curves]), strict=True):
        _line(by_update, curve, curve.updates, look)
        if np.isfinite(curve.seconds).all():
            _line(by_time, curve, curve.seconds, look)
    by_update.set(xlabel="update", ylabel="success of training rollouts", ylim=(-2, 102))
    by_update.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    by_update.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_time.set(xlabel="seconds of training (all stages, without evaluation)")
    for axes in (by_update, by_time):
        if not axes.lines:
            axes.text(0.5, 0.5, "nothing logged yet", transform=axes.transAxes, ha="center", va="center", color="0.4")
    seaborn.despine(figure)
    if curves:
        handles, labels = by_update.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=min(len(curves), 3), frameon=False, handlelength=3.5
        )
    figure.supxlabel(caption, fontsize=7.0, color="0.3", x=0.01, ha="left")


def looks(methods: list[str]) -> list[dict[str, Any]]:
    """Color, dash and marker of each line: told apart without color too, and by the color-blind. An estimator looks
    the same in every figure, whichever others are in it; variants and other methods take what is free."""
    places = {name: place for place, name in enumerate(estimators())}
    free = (place for place in count() if place not in {places[m] for m in methods if m in places})
    chosen = [places[method] if method in places else next(free) for method in methods]
    return [
        {
            "color": _COLORS[place % len(_COLORS)],
            "linestyle": _DASHES[place % len(_DASHES)],
            "marker": _MARKERS[place % len(_MARKERS)],
        }
        for place in chosen
    ]


def _line(axes: Axes, curve: Curve, x: np.ndarray, look: dict[str, Any]) -> None:
    every = max(1, len(x) // 8)
    marks: dict[str, Any] = {"markersize": 4.5, "markevery": every, "markeredgecolor": "white", "markeredgewidth": 0.5}
    axes.plot(x, curve.mean, label=_label(curve), linewidth=1.6, **marks, **look)
    if curve.seeds > 1:
        axes.fill_between(x, curve.low, curve.high, color=look["color"], alpha=0.12, linewidth=0)


def _label(curve: Curve) -> str:
    return f"{curve.method} (n={curve.seeds}{'' if curve.finished else ', unfinished'})"


def _caption(runs: Runs, curves: list[Curve], left_out: list[str]) -> str:
    first = runs.runs.iloc[0]
    data = next((label for label in runs.runs["label"] if label), first["benchmark"])
    text = f"{data}, model {first['model']}, protocol {first['protocol']}. Lines: mean over n seeds"
    text += "; bands: lowest to highest seed." if any(curve.seeds > 1 for curve in curves) else "."
    if left_out:
        text += f" Not drawn: {', '.join(left_out)}."
    return textwrap.fill(text, 140)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write stem.png and stem.pdf, each whole or not at all, without dates; the folder is made."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, metadata in _NO_DATES.items():
        path = stem.parent / f"{stem.name}.{suffix}"
        temporary = stem.parent / f".{stem.name}.{os.getpid()}.{suffix}.tmp"
        try:
            figure.savefig(temporary, format=suffix, metadata=metadata)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        paths.append(path)
    return paths
