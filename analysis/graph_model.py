"""A task group's trajectory graph as plain data: what a picture or an interactive page needs, and nothing else."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from algorithms import RolloutBatch, RolloutError, estimate, options_type
from algorithms.estimators import CommonOptions
from algorithms.graph import TrajectoryGraph
from algorithms.states import EncodedBatch, encode
from analysis.graph_layout import positions

GAMMA = 0.99  # discount of the drawn values where an estimator has none of its own
LABEL_WIDTH = 44


@dataclass(frozen=True)
class Node:
    """A state of the group. `value` in [0, 1] is the discounted chance of success that the rollouts show from here;
    `count` the visits; `x` the layer, `y` the place in it. `kind`: "start", "state", or where trajectories end:
    "success", "failure", "mixed" (both)."""

    id: int
    label: str
    text: str
    value: float
    count: int
    x: float
    y: float
    kind: str


@dataclass(frozen=True)
class Edge:
    """An action between two nodes, executed `count` times; `advantage` is the mean over those, `valid` is false where
    one of them was an invalid action."""

    source: int
    target: int
    action: str
    advantage: float
    count: int
    valid: bool


@dataclass(frozen=True)
class GraphView:
    """The graph of one task group under one estimator. Node ids and edge indices are places in `nodes` and `edges`.

    trajectories  edge indices of each trajectory in the order of its steps
    names         id of each trajectory, as text;  success: its outcome
    """

    group: str
    task: str
    estimator: str
    options: Mapping[str, Any]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    trajectories: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    success: tuple[bool, ...]

    def to_json(self) -> dict[str, Any]:
        """The view in strict JSON's types (dictionaries, lists, text, finite numbers)."""
        record = asdict(self)
        record["options"] = {key: _plain(value) for key, value in self.options.items()}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in record.items()}

    def trajectory(self, which: int | str) -> int:
        """Index of a trajectory given its index or its name. KeyError, naming what there is, when there is none."""
        if isinstance(which, int) and 0 <= which < len(self.names):
            return which
        if str(which) in self.names:
            return self.names.index(str(which))
        raise KeyError(f"there is no trajectory {which!r} in group {self.group}; it holds {', '.join(self.names)}")


def graph_view(
    batch: RolloutBatch, group: Any = None, estimator: str = "graft", *, layout: str = "auto", **options: Any
) -> GraphView:
    """The trajectory graph of one task group, its nodes valued and its edges credited.

    group    a value of the batch's `group` column (or its text); None takes the most telling one, `telling_group`
    layout   "auto" (graphviz's dot where it is installed), "dot" or "layered", see `analysis.graph_layout`
    options  of the estimator

    Values solve `V(u) = gamma * mean over executed transitions u -> v of V(v)` exactly, with the estimator's own gamma
    and sinks where it has them, else 0.99 and the observed final states as sinks. They don't depend on what the
    estimator makes of them, so pictures of several estimators can be laid side by side.

    Raises `RolloutError` for a group that isn't there and `OptionError` for a wrong estimator or option.
    """
    part = group_rows(batch, telling_group(batch) if group is None else group)
    advantages = estimate(estimator, part, **options).advantages[part.layout.order]
    settings = options_type(estimator)(**options)
    encoded = encode(part, settings.state_matching)
    graph = _graph(encoded, settings)
    number = _numbering(encoded, graph)
    action = part.column("action")[part.layout.order]
    edges, edge_of_row = _edges(number[graph.source], number[graph.target], action, advantages, encoded.valid)
    nodes = _nodes(part, encoded, graph, number, settings, edges, layout)
    first = part.layout.start
    return GraphView(
        group=str(part.column("group")[0]),
        task=str(part.column("task")[0]) if "task" in part else "",
        estimator=estimator,
        options=dict(options),
        nodes=nodes,
        edges=edges,
        trajectories=tuple(tuple(rows.tolist()) for rows in np.split(edge_of_row, first[1:])),
        names=tuple(str(name) for name in part.column("trajectory")[part.layout.order][first]),
        success=tuple(bool(flag) for flag in encoded.success[first]),
    )


def telling_group(batch: RolloutBatch) -> Any:
    """The group to look at first: one with both outcomes where there is one, among those the most merged."""
    layout = batch.layout
    encoded = encode(batch)
    solved = np.bincount(layout.group[layout.start], weights=encoded.success[layout.start], minlength=layout.groups)
    size = np.bincount(layout.group[layout.start], minlength=layout.groups)
    nodes = np.bincount(encoded.node_group[np.unique(encoded.state)], minlength=layout.groups)
    merged = 1.0 - nodes / np.bincount(layout.group, minlength=layout.groups)
    best = int(np.lexsort((-merged, ~((solved > 0) & (solved < size))))[0])
    return batch.column("group")[layout.order[np.searchsorted(layout.group, best)]]


def group_rows(batch: RolloutBatch, group: Any) -> RolloutBatch:
    """The rows of one group as a batch of its own. `RolloutError` when there is no such group."""
    rows = rows_of_group(batch, group)
    columns = {name: batch.column(name)[rows] for name in batch}
    return RolloutBatch.from_columns(success_reward=batch.success_reward, **columns)


def rows_of_group(batch: RolloutBatch, group: Any) -> np.ndarray:
    """Input rows of one group, named by its id or the id's text. `RolloutError` when there is no such group."""
    column = batch.column("group")
    rows = np.flatnonzero(column == group)
    if len(rows) == 0:
        rows = np.flatnonzero([str(value) == str(group) for value in column])
    if len(rows) == 0:
        some = list(dict.fromkeys(str(value) for value in column))
        raise RolloutError(f"there is no group {str(group)!r}; the first ones are {', '.join(some[:8])}")
    return rows


def _graph(encoded: EncodedBatch, settings: CommonOptions) -> TrajectoryGraph:
    dedicated = getattr(settings, "sinks", "merged") == "dedicated"
    return TrajectoryGraph.dedicated(encoded) if dedicated else TrajectoryGraph.merged(encoded)


def _numbering(encoded: EncodedBatch, graph: TrajectoryGraph) -> np.ndarray:
    """[graph nodes] number of each node by first visit (-1: none): step first, then trajectory."""
    order = np.lexsort((encoded.layout.trajectory, encoded.layout.step))
    met = np.column_stack([graph.source[order], graph.target[order]]).ravel()
    distinct, first = np.unique(met, return_index=True)
    number = np.full(graph.nodes, -1)
    number[distinct[np.argsort(first)]] = np.arange(len(distinct))
    return number


def _edges(
    source: np.ndarray, target: np.ndarray, action: np.ndarray, advantages: np.ndarray, valid: np.ndarray
) -> tuple[tuple[Edge, ...], np.ndarray]:
    """Distinct (source, target, action), and the edge [rows] of each row."""
    table: dict[tuple[int, int, str], int] = {}
    keys = zip(source.tolist(), target.tolist(), action, strict=True)
    place = np.array([table.setdefault(key, len(table)) for key in keys])
    count = np.bincount(place)
    mean = np.bincount(place, weights=advantages) / count
    all_valid = np.bincount(place, weights=~valid) == 0
    numbers = zip(mean.tolist(), count.tolist(), all_valid.tolist(), strict=True)
    return tuple(Edge(*key, *rest) for key, rest in zip(table, numbers, strict=True)), place


def _nodes(
    part: RolloutBatch,
    encoded: EncodedBatch,
    graph: TrajectoryGraph,
    number: np.ndarray,
    settings: CommonOptions,
    edges: Sequence[Edge],
    layout: str,
) -> tuple[Node, ...]:
    value = graph.solve(getattr(settings, "gamma", GAMMA))
    kinds = _kinds(encoded, graph)
    texts = _texts(part, encoded, graph)
    visits = np.bincount(np.concatenate([graph.source, graph.target[encoded.layout.last]]), minlength=graph.nodes)
    shown = np.argsort(number, kind="stable")[np.count_nonzero(number < 0) :]  # graph nodes by their number
    labels = _labels([texts[node] for node in shown])
    starts = np.unique(number[encoded.state[encoded.layout.start]])
    place = positions(len(shown), [(edge.source, edge.target) for edge in edges], starts.tolist(), layout)
    return tuple(
        Node(i, labels[i], texts[node], float(value[node]), int(visits[node]), float(x), float(y), kinds[node])
        for i, (node, (x, y)) in enumerate(zip(shown.tolist(), place, strict=True))
    )


def _kinds(encoded: EncodedBatch, graph: TrajectoryGraph) -> list[str]:
    kinds = ["state"] * graph.nodes
    for node in encoded.state[encoded.layout.start]:
        kinds[node] = "start"
    for node in np.flatnonzero(graph.is_sink):
        kinds[node] = {0.0: "failure", 1.0: "success"}.get(float(graph.sink_value[node]), "mixed")
    return kinds


def _texts(part: RolloutBatch, encoded: EncodedBatch, graph: TrajectoryGraph) -> list[str]:
    """[graph nodes] the state key first met at each node; dedicated sinks come last."""
    texts = [""] * encoded.nodes + ["SUCCESS", "FAILURE"][: graph.nodes - encoded.nodes]
    for name, nodes in (("next_state", encoded.next_state), ("state", encoded.state)):
        for node, text in zip(nodes[::-1].tolist(), part.column(name)[part.layout.order][::-1], strict=True):
            texts[node] = text
    return texts


def _labels(texts: Sequence[str]) -> list[str]:
    """One short line a text; texts that begin alike are numbered apart."""
    short = [textwrap.shorten(_first_line(text), LABEL_WIDTH, placeholder=" …") or "(empty)" for text in texts]
    repeated = {label for label, times in Counter(short).items() if times > 1}
    seen: Counter[str] = Counter()
    labels = []
    for label in short:
        seen[label] += 1
        labels.append(f"{label} ({seen[label]})" if label in repeated else label)
    return labels


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")


def _plain(value: Any) -> Any:
    """Infinity as text; JSON has none."""
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
