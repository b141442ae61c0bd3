"""Curves and significance of learning in known worlds."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy import stats

from analysis.faithfulness_metrics import interval
from analysis.figures import figure_style, looks, save_figure
from analysis.render import aligned_table, pipe_table
from analysis.worlds_learning import EXACT, Learned

ALL = "all worlds"
LEVEL = 0.05
MEASURES = ("area", "final")
NOTES = (
    "area: mean success over the updates (how fast); final: success after the last one. Exact success rates; mean over "
    "seeds ± half width of the 95 % interval.",
    "faster than / slower than: methods with a significantly smaller / larger area: Wilcoxon signed-rank over paired "
    "seeds (equal starts), Holm over all pairs of a world, p < 0.05.",
    f"{EXACT}: the same sampled steps credited with their exact advantages, the reference; it is not in the tests.",
)


@dataclass(frozen=True)
class Comparison:
    """`first` less `second` over paired seeds: mean difference, and Holm's adjusted p of a two-sided Wilcoxon test."""

    world: str
    measure: str
    first: str
    second: str
    difference: float
    p: float


def scores(results: Sequence[Learned], measure: str) -> dict[str, dict[str, np.ndarray]]:
    """world -> method -> [seeds]; `ALL` is the mean over worlds, seed by seed."""
    table: dict[str, dict[str, np.ndarray]] = {}
    for result in results:
        table.setdefault(result.setting.world, {})[result.method] = getattr(result, measure)
    methods = list(dict.fromkeys(result.method for result in results))
    if len(table) > 1:
        table[ALL] = {method: np.mean([table[world][method] for world in table], axis=0) for method in methods}
    return table


def compare(results: Sequence[Learned]) -> list[Comparison]:
    """Every pair of methods in every world, and over all worlds, by area and by final success."""
    return [
        comparison
        for measure in MEASURES
        for world, by_method in scores(results, measure).items()
        for comparison in _pairs(world, measure, {m: v for m, v in by_method.items() if m != EXACT})
    ]


def _pairs(world: str, measure: str, by_method: dict[str, np.ndarray]) -> Iterator[Comparison]:
    pairs = list(combinations(by_method, 2))
    raw = [_wilcoxon(by_method[a] - by_method[b]) for a, b in pairs]
    for (a, b), p in zip(pairs, holm(raw), strict=True):
        yield Comparison(world, measure, a, b, float(np.mean(by_method[a] - by_method[b])), p)


def _wilcoxon(difference: np.ndarray) -> float:
    """Two-sided p; 1 where all differences are 0 (to rounding)."""
    if np.all(np.abs(difference) < 1e-12):
        return 1.0
    return float(stats.wilcoxon(difference, zero_method="zsplit").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: the family-wise error of rejecting all with an adjusted p < alpha is alpha."""
    order = np.argsort(p_values)
    adjusted, running = [1.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = running
    return adjusted


def table(results: Sequence[Learned], world: str, comparisons: Sequence[Comparison]) -> list[list[str]]:
    """A grid of one world (or `ALL`): methods by area, the best first."""
    area, final = scores(results, "area")[world], scores(results, "final")[world]
    grid = [["method", "area", "final", "faster than", "slower than"]]
    for method in sorted(area, key=lambda name: -area[name].mean()):
        faster, slower = _beaten(method, world, comparisons)
        grid.append([method, _text(area[method]), _text(final[method]), faster, slower])
    return grid


def _beaten(method: str, world: str, comparisons: Sequence[Comparison]) -> tuple[str, str]:
    if method == EXACT:
        return "", ""
    faster: list[str] = []
    slower: list[str] = []
    for found in comparisons:
        if found.world != world or found.measure != "area" or method not in (found.first, found.second):
            continue
        ahead = found.difference if method == found.first else -found.difference
        other = found.second if method == found.first else found.first
        if found.p < LEVEL:
            (faster if ahead > 0 else slower).append(other)
    return ", ".join(faster), ", ".join(slower)


def _text(values: np.ndarray) -> str:
    mean, half = interval(values)
    return f"{mean:.3f} ±{half:.3f}"


def _worlds(results: Sequence[Learned]) -> list[str]:
    return list(scores(results, "area"))


def terminal(results: Sequence[Learned], comparisons: Sequence[Comparison]) -> str:
    """The last table (all worlds, where there are several), with counts in place of names."""
    world = _worlds(results)[-1]
    grid = table(results, world, comparisons)
    short = [
        grid[0],
        *([*line[:3], *(str(len(names.split(", "))) if names else "0" for names in line[3:])] for line in grid[1:]),
    ]
    return f"{_head(results)}, {world}\n\n{aligned_table(short)}\n"


def _head(results: Sequence[Learned]) -> str:
    setting = results[0].setting
    return (
        f"{setting.seeds} seeds, {setting.updates} updates of {setting.groups} x {setting.size} rollouts, horizon "
        f"{setting.horizon}, Adam {setting.rate:g}, start at {setting.start:g}"
    )


def markdown(results: Sequence[Learned], comparisons: Sequence[Comparison]) -> str:
    """All tables, the one over all worlds first."""
    blocks = ["# Learning in known worlds", f"{_head(results)}.", *(f"- {note}" for note in NOTES)]
    for world in reversed(_worlds(results)):
        blocks += [f"## {world}", pipe_table(table(results, world, comparisons))]
    return "\n\n".join(blocks) + "\n"


def record(results: Sequence[Learned], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Everything, JSON-able: curves by seed, and every comparison."""
    runs = [
        {"method": r.method, **asdict(r.setting), "marks": r.setting.marks, "success": r.success.T.round(6).tolist()}
        for r in results
    ]
    return {"schema": 1, "runs": runs, "comparisons": [asdict(found) for found in comparisons]}


def comparisons_csv(comparisons: Sequence[Comparison]) -> str:
    """One line a comparison."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(Comparison.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(found) for found in comparisons)
    return out.getvalue()


def draw(results: Sequence[Learned], stem: Path) -> list[Path]:
    """One panel a world: mean success over seeds against updates, bands of 95 %."""
    worlds = list(dict.fromkeys(result.setting.world for result in results))
    wide = min(len(worlds), 4)
    tall = -(-len(worlds) // wide)
    with figure_style():
        figure = Figure(figsize=(2.7 * wide, 2.2 * tall + 0.8), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(tall, wide, sharex=True, squeeze=False)
        for panel, world in zip(panels.flat, worlds, strict=False):
            _draw_world(panel, [result for result in results if result.setting.world == world])
            panel.set_title(world)
        for panel in panels.flat[len(worlds) :]:
            panel.set_axis_off()
        for panel in panels[-1]:
            panel.set_xlabel("update")
        for panel in panels[:, 0]:
            panel.set_ylabel("exact success")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 6), frameon=False)
        return save_figure(figure, stem)


def _draw_world(panel: Axes, results: Sequence[Learned]) -> None:
    methods = [result.method for result in results if result.method != EXACT]
    by_method = dict(zip(methods, looks(methods), strict=True))
    for result in results:
        look = by_method.get(result.method, {"color": "0.6", "linestyle": "-", "marker": ""})
        marks, mean = result.setting.marks, result.success.mean(1)
        half = 1.96 * result.success.std(1, ddof=1) / np.sqrt(result.success.shape[1])
        every = max(1, len(marks) // 5)
        panel.plot(marks, mean, label=result.method, linewidth=1.2, markersize=3.0, markevery=every, **look)
        panel.fill_between(marks, mean - half, mean + half, color=look["color"], alpha=0.12, linewidth=0)
