"""Figures of a set of runs: the shared look, and the learning curves.

No display, no global matplotlib state, equal files for equal runs.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from algorithms import estimators
from analysis.comparable import check_comparable, method_names, method_order, trains
from analysis.load import Runs
from analysis.scores import STAGES

_SEABORN = "seaborn-v0_8-whitegrid"  # seaborn's look as Matplotlib keeps it: importing seaborn takes 0.7 s
_RC: dict[Any, Any] = {
    "grid.color": "0.9",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "creditbench",
    "savefig.dpi": 200,
}
_COLORS = (
    "#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#262626", "#56b4e9", "#ca9161", "#7f3c8d", "#8a8a00",
    "#e73f74", "#4d5a9a",
)  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "X", "h", "*")
_DASHES: tuple[Any, ...] = (
    "-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (4, 1.5, 1, 1.5, 1, 1.5)), (0, (2, 1)), (0, (7, 2, 1, 2)),
)  # fmt: skip
FORMATS: dict[str, dict[str, Any]] = {  # with what keeps dates out of the files
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None},
    "svg": {"Date": None},
}


@dataclass(frozen=True)
class Curve:
    """Success of one method while it trained, at the updates that all its `seeds` have: [updates] arrays, success in
    percent (mean, lowest and highest seed), `episodes` played and `seconds` of training so far (means over seeds; NaN
    when not logged)."""

    method: str
    seeds: int
    finished: bool
    updates: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    episodes: np.ndarray
    seconds: np.ndarray


def learning_curves(runs: Runs, stem: str | Path, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write `learning_figure` of a comparable set of runs.

    Args:
        runs: from `load_runs`; all of one benchmark, model and protocol.
        stem: path of the files without suffix; its folder is made.

    Returns:
        [stem.png, stem.pdf] (or other formats), each written whole or not at all.

    Raises:
        ComparisonError: runs that can't stand in one figure.
    """
    check_comparable(runs, ())
    with figure_style():
        figure, _ = learning_figure(runs, method_names(runs))
        return save_figure(figure, Path(stem), formats)


def learning_figure(runs: Runs, methods: pd.Series) -> tuple[Figure, list[str]]:
    """Success of the training rollouts against updates, episodes and seconds of training, one line a method; and the
    runs left out.

    A line is the mean over seeds, the band spans the lowest and the highest seed (none with one seed). A method with
    finished runs is drawn from those alone; one without is drawn from what it has and called unfinished. Runs that
    are left out are named under the panels; a set without any metrics gives a figure that says so.

    Args:
        runs: found comparable.
        methods: name of each run's method, aligned with `runs.runs`.
    """
    curves, left_out = training_curves(runs, methods=methods)
    figure = new_figure(9.6, 3.6)
    _draw(figure, curves, caption(runs, curves, left_out))
    return figure, left_out


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, with a canvas of its own."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def training_curves(
    runs: Runs, column: str = "success", scale: float = 100.0, methods: pd.Series | None = None
) -> tuple[list[Curve], list[str]]:
    """The curves of all trained methods in table order, and one line for each run that no curve holds. `column` of
    the metrics, times `scale`, takes the place of success in percent."""
    frame = runs.runs.assign(method=method_names(runs) if methods is None else methods)
    frame = frame[frame["method"].map(trains).astype(bool)]
    metrics = runs.metrics.reindex(columns=list(dict.fromkeys([*runs.metrics.columns, "episodes", column])))
    with_value = set(metrics.loc[metrics[column].notna(), "run"])
    curves, left_out = [], []
    for method in method_order(frame["method"]):
        rows = frame[frame["method"] == method]
        done = rows[rows["state"] == "done"]
        logged = [run for run in (done if len(done) else rows)["run"] if run in with_value]
        if logged:
            values = metrics[metrics["run"].isin(logged)].assign(value=lambda rows: scale * rows[column])
            curves.append(_curve(method, values, finished=len(done) > 0))
        missing = rows[~rows["run"].isin(logged)]
        left_out += [f"{method} seed {r.seed} ({_absence(r.state)})" for r in missing.itertuples()]
    return curves, left_out


def _absence(state: str) -> str:
    return "no metrics" if state == "done" else state


def _curve(method: str, rows: pd.DataFrame, finished: bool) -> Curve:
    """Seeds side by side at their common updates; where one seed ends, the line ends."""
    values = rows.pivot(index="update", columns="run", values="value").dropna()
    stages = rows.reindex(columns=[f"timing/{stage}" for stage in STAGES]).sum(axis=1, skipna=False)
    return Curve(
        method=method,
        seeds=values.shape[1],
        finished=finished,
        updates=values.index.to_numpy(),
        mean=values.mean(axis=1).to_numpy(),
        low=values.min(axis=1).to_numpy(),
        high=values.max(axis=1).to_numpy(),
        episodes=_spent(rows, rows["episodes"]).loc[values.index].to_numpy(),
        seconds=_spent(rows, stages).loc[values.index].to_numpy(),
    )


def _spent(rows: pd.DataFrame, cost: pd.Series) -> pd.Series:
    """Cost up to and with each update (the index), mean over seeds; unknown from the first unknown one on."""
    total = cost.astype(float).groupby(rows["run"]).transform(lambda values: values.cumsum(skipna=False))
    by_run = pd.Series(total.to_numpy(), index=pd.MultiIndex.from_frame(rows[["update", "run"]]))
    return by_run.unstack("run").mean(axis=1, skipna=False)


@contextmanager
def figure_style() -> Iterator[None]:
    """The look of all figures, undone at the end."""
    with style.context([_SEABORN, _RC]):
        yield


def _draw(figure: Figure, curves: list[Curve], text: str) -> None:
    axes = figure.subplots(1, 3, sharey=True)
    for place, name in zip(axes, ("updates", "episodes", "seconds"), strict=True):
        draw_curves(place, curves, name)
    axes[0].set(xlabel="update", ylabel="success of training rollouts", ylim=(-2, 102))
    axes[0].yaxis.set_major_formatter(PercentFormatter(decimals=0))
    axes[1].set(xlabel="episodes")
    axes[2].set(xlabel="wall time, seconds (without evaluation)")
    finish(figure, axes, text)


def draw_curves(axes: Axes, curves: list[Curve], x: str) -> None:
    """The curves that are known, against `updates`, `episodes` or `seconds`."""
    for curve, look in zip(curves, looks([curve.method for curve in curves]), strict=True):
        values = getattr(curve, x)
        if np.isfinite(values).all():
            _line(axes, curve, values, look)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=x != "seconds"))


def finish(figure: Figure, axes: Iterable[Axes], text: str, legend: bool = True) -> None:
    """What figures end with: a word in empty panels, the legend of the first panel above, the caption below."""
    panels = list(axes)
    for place in panels:
        if not place.has_data():
            place.text(
                0.5, 0.5, "nothing to draw yet", transform=place.transAxes, ha="center", va="center", color="0.4"
            )
    handles, labels = panels[0].get_legend_handles_labels() if panels else ([], [])
    if handles and legend:
        figure.legend(
            handles, labels, loc="outside upper center", ncols=min(len(labels), 3), frameon=False, handlelength=3.5
        )
    wide = int(figure.get_size_inches()[0] * 19)
    figure.supxlabel(textwrap.fill(text, wide), fontsize=7.0, color="0.3", x=0.01, ha="left")


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


def caption(runs: Runs, curves: Sequence[Curve], left_out: Sequence[str]) -> str:
    """What the curves are, and which runs they don't hold."""
    text = f"{setting(runs)}. Lines: mean over n seeds"
    text += "; bands: lowest to highest seed." if any(curve.seeds > 1 for curve in curves) else "."
    return text + not_drawn(left_out)


def setting(runs: Runs) -> str:
    """Data, model and protocol of a comparable set, in words."""
    first = runs.runs.iloc[0]
    data = next((label for label in runs.runs["label"] if label), first["benchmark"])
    return f"{data}, model {first['model']}, protocol {first['protocol']}"


def not_drawn(left_out: Sequence[str], most: int = 12) -> str:
    """One sentence that names the runs left out (the first ones of many); empty for none."""
    if not left_out:
        return ""
    more = f" and {len(left_out) - most} more" if len(left_out) > most else ""
    return f" Not drawn: {', '.join(left_out[:most])}{more}."


def save_figure(figure: Figure, stem: Path, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write the figure in these formats, each file whole or not at all, without dates; the folder is made."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    figure.draw_without_rendering()  # places everything, once for all formats
    figure.set_layout_engine("none")
    paths = []
    for suffix in formats:
        path = stem.parent / f"{stem.name}.{suffix}"
        temporary = stem.parent / f".{stem.name}.{os.getpid()}.{suffix}.tmp"
        try:
            figure.savefig(temporary, format=suffix, metadata=FORMATS[suffix])
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        paths.append(path)
    return paths
