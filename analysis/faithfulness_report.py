"""Tables and figures of a faithfulness run, made from its rows alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.faithfulness import MEASURES
from analysis.figures import figure_style, looks, save_figure
from analysis.render import DASH, aligned_table, pipe_table

Row = Mapping[str, Any]

HEADERS = {
    "mse": "MSE",
    "mse_scaled": "MSE, best scale",
    "sign": "right signs",
    "rank": "rank in state",
    "cosine": "gradient cosine",
    "mean_cosine": "cosine of mean",
    "bias2": "bias²",
    "variance": "variance",
    "zero": "no credit",
}
LEGEND = (
    "MSE: mean squared error against the exact advantage (success = 1); best scale: after the best factor, over the "
    "mean of A² (0 exact, 1 no better than saying 0).",
    "right signs: share of rows with the sign of the exact advantage; rank in state: Kendall's tau over actions of one "
    "state; gradient cosine: of a group's policy gradient with the exact one; cosine of mean: of all groups' mean.",
    "bias², variance: over the mean of A², at the scale that fits the expected estimate best. "
    "± half width of the 95 % interval.",
)
_FLAT = 1e-3  # worlds whose mean A² is below this say nothing about scaled errors
_DRAWN = ("mse_scaled", "sign", "rank", "cosine")


def overview(rows: Sequence[Row]) -> list[list[str]]:
    """A grid: one line an estimator, measures averaged over the worlds that have advantages worth the name."""
    kept = [row for row in rows if row["axis"] == "world" and row["power"] >= _FLAT]
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    grid = [["estimator", *HEADERS.values()]]
    for name in names:
        mine = [row for row in kept if row["estimator"] == name]
        grid.append([name, *(_averaged(mine, measure) for measure in MEASURES)])
    return grid


def _averaged(rows: Sequence[Row], measure: str) -> str:
    """Mean over worlds; their intervals add in squares."""
    known = [row for row in rows if row[measure] is not None]
    if not known:
        return DASH
    mean = float(np.mean([row[measure] for row in known]))
    halves = [row[f"{measure}_ci"] for row in known]
    if any(half is None for half in halves):
        return f"{mean:.3f}"
    return f"{mean:.3f} ±{float(np.sqrt(np.sum(np.square(halves)))) / len(known):.3f}"


def left_out(rows: Sequence[Row]) -> list[str]:
    """Worlds that `overview` leaves out."""
    return list(dict.fromkeys(row["world"] for row in rows if row["axis"] == "world" and row["power"] < _FLAT))


def terminal(rows: Sequence[Row]) -> str:
    """What a user sees at the end of a run."""
    note = f" (without {', '.join(left_out(rows))}: advantages of nearly 0)" if left_out(rows) else ""
    worlds = len({row["world"] for row in rows if row["axis"] == "world"}) - len(left_out(rows))
    return f"Mean over {worlds} worlds, groups of 8{note}\n\n{aligned_table(overview(rows))}\n"


def markdown(rows: Sequence[Row]) -> str:
    """The overview, then one table for each axis: level by level, estimator by estimator."""
    blocks = ["# Estimators against exact advantages", *(f"- {line}" for line in LEGEND)]
    blocks += ["## All worlds", terminal(rows).partition("\n")[0] + ".", pipe_table(overview(rows))]
    for axis in dict.fromkeys(row["axis"] for row in rows):
        mine = [row for row in rows if row["axis"] == axis]
        blocks += [f"## By {axis}", _conditions(mine), pipe_table(_axis_grid(mine))]
    return "\n\n".join(blocks) + "\n"


def _conditions(rows: Sequence[Row]) -> str:
    """What is the same in all rows of an axis."""
    same = [
        f"{name} {next(iter(values))}"
        for name in ("world", "size", "horizon", "invalid", "aliasing", "key", "worlds")
        if len(values := {row[name] for row in rows}) == 1
    ]
    return f"The same throughout: {', '.join(same)}."


def _axis_grid(rows: Sequence[Row]) -> list[list[str]]:
    grid = [["level", "estimator", "success", "groups", *HEADERS.values()]]
    for row in rows:
        cells = [_cell(row[measure], row[f"{measure}_ci"]) for measure in MEASURES]
        grid.append([str(row["level"]), row["estimator"], f"{row['success']:.2f}", str(row["groups"]), *cells])
    return grid


def _cell(mean: float | None, half: float | None) -> str:
    if mean is None:
        return DASH
    return f"{mean:.3f}" if half is None else f"{mean:.3f} ±{half:.3f}"


def table_csv(rows: Sequence[Row]) -> str:
    """All rows and keys; missing values are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


# --- figures ----------------------------------------------------------------------------------------------------------


def draw_axes(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Four measures (rows of panels) against each axis (columns), one line an estimator, bars of 95 %."""
    axes_names = [axis for axis in dict.fromkeys(row["axis"] for row in rows) if axis != "world"]
    return _panels(rows, _DRAWN, axes_names, stem)


def draw_bias_variance(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Squared bias and variance, apart, against each axis."""
    axes_names = [axis for axis in dict.fromkeys(row["axis"] for row in rows) if axis != "world"]
    return _panels(rows, ("bias2", "variance"), axes_names, stem)


def _panels(rows: Sequence[Row], measures: Sequence[str], axes_names: Sequence[str], stem: Path) -> list[Path]:
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    with figure_style():
        figure = Figure(figsize=(2.3 * len(axes_names), 1.75 * len(measures) + 0.8), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(measures), len(axes_names), sharex="col", sharey="row", squeeze=False)
        for line, measure in enumerate(measures):
            for column, axis in enumerate(axes_names):
                _draw_panel(panels[line, column], rows, measure, axis, names)
            panels[line, 0].set_ylabel(HEADERS[measure])
            if measure == "variance":
                panels[line, 0].set_yscale("log")
        for column, axis in enumerate(axes_names):
            panels[-1, column].set_xlabel(axis)
        _legend(figure, panels[0, 0], len(names))
        return save_figure(figure, stem)


def _draw_panel(panel: Axes, rows: Sequence[Row], measure: str, axis: str, names: Sequence[str]) -> None:
    for name, look in zip(names, looks(list(names)), strict=True):
        mine = [r for r in rows if r["axis"] == axis and r["estimator"] == name and r[measure] is not None]
        halves = [row[f"{measure}_ci"] or 0.0 for row in mine]
        panel.errorbar(
            [row["level"] for row in mine],
            [row[measure] for row in mine],
            yerr=halves if measure != "variance" else None,
            label=name,
            linewidth=1.2,
            markersize=3.0,
            elinewidth=0.7,
            **look,
        )
    if axis == "N":
        panel.set_xscale("log", base=2)


def draw_worlds(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Four measures (panels) by world, one mark an estimator, bars of 95 %."""
    mine = [row for row in rows if row["axis"] == "world"]
    names = list(dict.fromkeys(row["estimator"] for row in mine))
    worlds = list(dict.fromkeys(row["world"] for row in mine))
    with figure_style():
        figure = Figure(figsize=(2.6 * len(_DRAWN), 0.55 * len(worlds) + 1.2), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(_DRAWN), sharey=True)
        for panel, measure in zip(panels, _DRAWN, strict=True):
            _draw_marks(panel, mine, measure, names, worlds)
        panels[0].set_yticks(range(len(worlds)), worlds)
        panels[0].invert_yaxis()
        _legend(figure, panels[0], len(names))
        return save_figure(figure, stem)


def _draw_marks(panel: Axes, rows: Sequence[Row], measure: str, names: Sequence[str], worlds: Sequence[str]) -> None:
    for place, (name, look) in enumerate(zip(names, looks(list(names)), strict=True)):
        own = [row for row in rows if row["estimator"] == name and row[measure] is not None]
        height = [worlds.index(row["world"]) + 0.7 * (place / max(len(names) - 1, 1) - 0.5) for row in own]
        panel.errorbar(
            [row[measure] for row in own],
            height,
            xerr=[row[f"{measure}_ci"] or 0.0 for row in own],
            label=name,
            markersize=3.5,
            elinewidth=0.8,
            **{**look, "linestyle": "none"},
        )
    panel.set_xlabel(HEADERS[measure])


def _legend(figure: Figure, panel: Axes, count: int) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(count, 6), frameon=False)
