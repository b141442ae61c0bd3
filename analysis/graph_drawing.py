"""A trajectory graph as a picture: nodes by value, edges by advantage, one trajectory highlighted. PDF, SVG or PNG."""

from __future__ import annotations

import os
import textwrap
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, PathPatch
from matplotlib.path import Path as Curve

from analysis.graph_model import Edge, GraphView, Node

FORMATS = ("pdf", "svg", "png")
_NO_DATES: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Producer": None},
    "svg": {"Date": None},
    "png": {"Software": None},
}
_RC: dict[Any, Any] = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "creditbench", "font.size": 7.0}
_ACROSS, _DOWN = 1.75, 1.05  # inches between layers and within one
_MARGIN = 0.9
_HEAD, _FOOT = 0.35, 0.75  # inches above and below the graph
_PIXELS = 10_000  # longest side of a PNG
_LARGEST = 120.0  # inches; a larger picture is scaled down
_ALL_LABELS = 60  # edges up to which every action is written; beyond, those of the highlighted trajectory
_RADIUS = 0.115  # of a node, in inches
_MARKERS = {"start": ">", "state": "o", "success": "*", "failure": "s", "mixed": "D"}
_KINDS = {
    "start": "first state",
    "state": "state",
    "success": "end, solved",
    "failure": "end, not solved",
    "mixed": "end, both",
}
_INK = "#222222"
_CASING = "#ffc20a"  # around the highlighted trajectory
# Gray in the middle, not white: an action without credit must stay visible.
_CREDIT = LinearSegmentedColormap.from_list("credit", ["#8e0d1f", "#d6604d", "#b8b8b8", "#4393c3", "#0b3c78"])


def draw(view: GraphView, path: str | os.PathLike[str], highlight: int | str | None = None) -> Path:
    """Write the picture, whole or not at all; the suffix of `path` says the format (pdf, svg, png).

    Node color is the value (pale 0, dark green 1), edge color the mean advantage (red below 0, blue above, each side
    on one scale around 0), edge width the number of executions; invalid actions are dashed. `highlight` is a
    trajectory by index or name: its edges get a yellow casing and the numbers of its steps. Actions are written on all
    edges of a small graph, else on the highlighted ones. Equal views give equal files.

    Raises ValueError for another suffix and KeyError for a trajectory that isn't there.
    """
    target = Path(path)
    suffix = target.suffix[1:].lower()
    if suffix not in FORMATS:
        raise ValueError(f"{target}: a picture is one of {', '.join(FORMATS)}, by its suffix")
    steps = _highlighted(view, highlight)
    with matplotlib.rc_context(_RC):
        figure = _figure(view, steps, highlight)
        return _save(figure, target, suffix)


def _highlighted(view: GraphView, highlight: int | str | None) -> dict[int, list[int]]:
    """Edge -> steps of the highlighted trajectory on it."""
    steps: dict[int, list[int]] = defaultdict(list)
    if highlight is not None:
        for step, edge in enumerate(view.trajectories[view.trajectory(highlight)]):
            steps[edge].append(step)
    return dict(steps)


def _figure(view: GraphView, steps: dict[int, list[int]], highlight: int | str | None) -> Figure:
    xs = np.array([node.x for node in view.nodes]) * _ACROSS
    ys = np.array([node.y for node in view.nodes]) * _DOWN
    width, height = float(np.ptp(xs)) + 2 * _MARGIN, float(np.ptp(ys)) + 2 * _MARGIN
    scale = min(1.0, _LARGEST / max(width, height))
    body, across = max(height * scale, 1.5), max(width * scale, 7.0)
    tall = _FOOT + body + _HEAD
    figure = Figure(figsize=(across, tall))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, _FOOT / tall, 1.0, body / tall))
    axes.set_axis_off()
    axes.set_xlim(xs.min() - _MARGIN, xs.max() + _MARGIN)
    axes.set_ylim(ys.min() - _MARGIN, ys.max() + _MARGIN)
    axes.set_aspect("equal")
    values = ScalarMappable(Normalize(0.0, 1.0), "YlGn")
    credits = ScalarMappable(_advantage_norm(view.edges), _CREDIT)
    places = np.column_stack([xs, ys])
    _draw_edges(axes, view, places, credits, steps)
    _draw_nodes(axes, view.nodes, places, values)
    _explain(figure, view, values, credits)
    figure.text(0.15 / across, 1 - 0.12 / tall, _title(view, highlight), fontsize=8.0, va="top")
    return figure


def _advantage_norm(edges: tuple[Edge, ...]) -> Normalize:
    largest = max((abs(edge.advantage) for edge in edges), default=0.0) or 1.0
    return Normalize(-largest, largest)


# --- edges ------------------------------------------------------------------------------------------------------------


def _draw_edges(
    axes: Axes, view: GraphView, places: np.ndarray, credits: ScalarMappable, steps: dict[int, list[int]]
) -> None:
    bends = _bends(view)
    most = max(edge.count for edge in view.edges)
    taken = [*places, *(places - (0.0, 0.3))]  # nodes and what is written under them
    for index in sorted(range(len(view.edges)), key=lambda i: i in steps):  # the highlighted ones on top
        edge = view.edges[index]
        curve = _clear_curve(view, places, edge, bends[index])
        width = 0.9 + 2.6 * edge.count / most
        if index in steps:
            axes.add_patch(PathPatch(curve, facecolor="none", edgecolor=_CASING, linewidth=width + 5.0, zorder=2.5))
        line = "-" if edge.valid else (0, (3, 1.5))
        axes.add_patch(_arrow(curve, credits.to_rgba(np.array([edge.advantage]))[0], width, line, 3.0))
        if index in steps or len(view.edges) <= _ALL_LABELS:
            spot = _free_spot(np.asarray(curve.vertices), taken)
            _write_action(axes, edge, spot, steps.get(index))
            taken.append(spot)


def _arrow(curve: Curve, color: Any, width: float, line: Any, order: float) -> FancyArrowPatch:
    return FancyArrowPatch(
        path=curve,
        arrowstyle=f"-|>,head_length={0.9 + 0.35 * width},head_width={0.5 + 0.22 * width}",
        mutation_scale=3.2,
        color=color,
        linewidth=width,
        linestyle=line,
        joinstyle="miter",
        zorder=order,
    )


def _bends(view: GraphView) -> list[float]:
    """How far each edge swings to its left, in inches: edges of one pair of nodes are fanned out, edges that lead back
    or stay in their layer swing around what lies between."""
    pair_edges: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, edge in enumerate(view.edges):
        pair_edges[edge.source, edge.target].append(index)
    bends = [0.0] * len(view.edges)
    for (source, target), members in pair_edges.items():
        across = view.nodes[target].x - view.nodes[source].x
        away = abs(view.nodes[target].y - view.nodes[source].y)
        base = 0.0
        if source == target:
            base = 0.55
        elif across <= 0.5:
            base = 0.35 + 0.12 * (abs(across) + 0.5 * away)
        elif (target, source) in pair_edges:
            base = 0.12
        for rank, index in enumerate(members):
            spread = rank if base else rank - (len(members) - 1) / 2
            bends[index] = base + 0.34 * spread
    return bends


def _clear_curve(view: GraphView, places: np.ndarray, edge: Edge, bend: float) -> Curve:
    """An edge that leads back swings to the side where it keeps away from other nodes."""
    curve = _curve(places[edge.source], places[edge.target], bend)
    if edge.source == edge.target or view.nodes[edge.target].x > view.nodes[edge.source].x or len(places) < 3:
        return curve
    other = _curve(places[edge.source], places[edge.target], -bend)
    foreign = np.delete(places, [edge.source, edge.target], axis=0)
    return other if _room(other, foreign) > _room(curve, foreign) + 0.05 else curve


def _room(curve: Curve, points: np.ndarray) -> float:
    """Least distance of a cubic from some points."""
    along = _cubic(np.linspace(0.1, 0.9, 17), np.asarray(curve.vertices))
    return float(np.min(np.linalg.norm(along[:, None] - points, axis=2)))


def _cubic(t: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Points [n, 2] of a cubic Bezier curve at parameters t [n]."""
    return np.column_stack([(1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3]) @ points


def _curve(start: np.ndarray, end: np.ndarray, bend: float) -> Curve:
    """A cubic from rim to rim of two nodes, or a loop above one node."""
    if np.allclose(start, end):
        side, up = np.array([0.30, 0.0]), np.array([0.0, 0.35 + bend])
        rim = np.array([0.07, 0.10])
        points = [start + rim * (-1, 1), start - side + up, start + side + up, start + rim]
        return Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
    along = end - start
    length = float(np.linalg.norm(along))
    normal = np.array([-along[1], along[0]]) / length
    first, second = start + along / 3 + normal * bend, end - along / 3 + normal * bend
    begin = start + _unit(first - start) * _RADIUS
    finish = end + _unit(second - end) * (_RADIUS + 0.03)
    return Curve([begin, first, second, finish], [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-9)


def _free_spot(points: np.ndarray, taken: list[np.ndarray]) -> np.ndarray:
    """The point of a cubic, not far from its middle, with the most room around; labels are wider than tall."""
    best, most = points[0], -1.0
    for point in _cubic(np.array([0.5, 0.4, 0.6, 0.32, 0.68]), points):
        room = np.min(np.linalg.norm((np.array(taken) - point) * (0.45, 1.0), axis=1))
        if room > most + 0.03:  # the middle, unless another place is clearly better
            best, most = point, room
    return best


def _write_action(axes: Axes, edge: Edge, spot: np.ndarray, steps: list[int] | None) -> None:
    text = textwrap.fill(textwrap.shorten(_shown(edge.action) or "(empty)", 60, placeholder=" …"), 22)
    note = f"{edge.advantage:+.2f}".replace("-0.00", "+0.00") + (f" ×{edge.count}" if edge.count > 1 else "")
    if steps is not None:
        note = f"step {', '.join(map(str, steps))}: {note}"
    axes.annotate(
        f"{text}\n{note}",
        (spot[0], spot[1]),
        ha="center",
        va="center",
        fontsize=5.2,
        color=_INK,
        fontweight="bold" if steps is not None else "normal",
        zorder=5.0,
        bbox={"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.78},
    )


# --- nodes ------------------------------------------------------------------------------------------------------------


def _draw_nodes(axes: Axes, nodes: tuple[Node, ...], places: np.ndarray, values: ScalarMappable) -> None:
    for kind, marker in _MARKERS.items():
        rows = [node.id for node in nodes if node.kind == kind]
        if rows:
            colors = values.to_rgba(np.array([nodes[i].value for i in rows]))
            size = 420.0 if marker == "*" else 230.0
            x, y = places[rows].T
            axes.scatter(x, y, s=size, c=colors, marker=marker, edgecolors=_INK, linewidths=0.9, zorder=4.0)
    for node, (x, y) in zip(nodes, places, strict=True):
        axes.annotate(
            str(node.id),
            (x, y),
            ha="center",
            va="center",
            fontsize=6.0,
            color="white" if node.value > 0.6 else _INK,
            zorder=4.5,
        )
        if len(nodes) <= _ALL_LABELS or node.kind != "state":
            _write_state(axes, node, x, y)


def _write_state(axes: Axes, node: Node, x: float, y: float) -> None:
    axes.annotate(
        f"{textwrap.fill(_shown(node.label), 24)}\nV {node.value:.2f}, {node.count} visits",
        (x, y - 0.15),
        ha="center",
        va="top",
        fontsize=4.8,
        color="0.25",
        zorder=4.2,
        linespacing=0.95,
        bbox={"boxstyle": "round,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.6},
    )


def _shown(text: str) -> str:
    """Text as matplotlib may print it: no math mode, no control characters."""
    return "".join(c if c.isprintable() else " " for c in text).replace("$", r"\$")


# --- around it --------------------------------------------------------------------------------------------------------


def _explain(figure: Figure, view: GraphView, values: ScalarMappable, credits: ScalarMappable) -> None:
    """The two color scales and the shapes, at the foot."""
    across, tall = figure.get_size_inches()
    words = ("value of a state", f"mean advantage of an action ({view.estimator})")
    for place, (scale, label) in enumerate(zip((values, credits), words, strict=True)):
        bar = figure.add_axes(((0.2 + 2.3 * place) / across, 0.42 / tall, 2.0 / across, 0.1 / tall))
        figure.colorbar(scale, cax=bar, orientation="horizontal", label=label)
    present = {node.kind for node in view.nodes}
    handles = [
        Line2D([], [], linestyle="", marker=_MARKERS[kind], color="white", markeredgecolor=_INK, label=text)
        for kind, text in _KINDS.items()
        if kind in present
    ]
    handles.append(Line2D([], [], color="0.4", linestyle=(0, (3, 1.5)), label="invalid action"))
    corner = (4.7 / across, 0.08 / tall)
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=corner, ncols=2, fontsize=6.0, frameon=False)


def _title(view: GraphView, highlight: int | str | None) -> str:
    solved = sum(view.success)
    parts = [f"group {view.group}: {solved} of {len(view.success)} trajectories solved it"]
    if view.options:
        parts.append(", ".join(f"{key}={value}" for key, value in view.options.items()))
    if highlight is not None:
        index = view.trajectory(highlight)
        outcome = "solved" if view.success[index] else "not solved"
        parts.append(f"highlighted: trajectory {view.names[index]} ({outcome})")
    return _shown("; ".join(parts))


def _dpi(figure: Figure) -> float:
    return float(min(180.0, _PIXELS / max(figure.get_size_inches())))


def _save(figure: Figure, target: Path, suffix: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands for it
            figure.savefig(temporary, format=suffix, metadata=_NO_DATES[suffix], dpi=_dpi(figure))
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target
