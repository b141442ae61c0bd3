"""Places for the nodes of a trajectory graph: layers from left to right, few crossings, neighbors near each other.

Layers are distances from the starts, so an edge leads at most one layer to the right and no edge crosses a layer
between. Orders come from barycenter sweeps (Sugiyama et al., 1981). Places within a layer solve "as near to the
neighbors as a gap of 1 allows" exactly: an isotonic regression. Where graphviz is installed, its `dot` does it all.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import deque
from collections.abc import Sequence

import numpy as np
from scipy.optimize import isotonic_regression

Pairs = Sequence[tuple[int, int]]
LAYOUTS = ("auto", "dot", "layered")
_SWEEPS = 16
_RELAXATIONS = 8
_DOT_SECONDS = 20


def positions(nodes: int, edges: Pairs, starts: Sequence[int], layout: str = "auto") -> np.ndarray:
    """[nodes, 2] x and y in units of one node spacing, layers along x from 0, y from 0.

    layout  "dot": graphviz; "layered": our own; "auto": dot where it is installed and does not fail

    Raises ValueError for another layout, and for "dot" where graphviz is missing or fails.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; it must be one of {', '.join(LAYOUTS)}")
    if layout == "layered" or (layout == "auto" and shutil.which("dot") is None):
        return layered(nodes, edges, starts)
    try:
        return _dot(nodes, edges, starts)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        if layout == "dot":
            reason = " ".join(str(error).split())
            raise ValueError(f"layout 'dot' needs graphviz's program dot ({reason}); use 'layered'") from None
        return layered(nodes, edges, starts)


def layered(nodes: int, edges: Pairs, starts: Sequence[int]) -> np.ndarray:
    """Our own layout, see the module; a node that no start leads to stands in layer 0."""
    layer = layers(nodes, edges, starts)
    forward = sorted({(s, t) for s, t in edges if layer[t] == layer[s] + 1})
    order = _order(layer, forward)
    y = _relaxed(order, forward, nodes)
    return np.column_stack([layer.astype(float), y - y.min(initial=0.0)])


def layers(nodes: int, edges: Pairs, starts: Sequence[int]) -> np.ndarray:
    """[nodes] fewest edges from a start; 0 where no start leads."""
    following: list[list[int]] = [[] for _ in range(nodes)]
    for source, target in edges:
        following[source].append(target)
    layer = np.full(nodes, -1)
    layer[list(starts)] = 0
    queue = deque(starts)
    while queue:
        node = queue.popleft()
        for target in following[node]:
            if layer[target] < 0:
                layer[target] = layer[node] + 1
                queue.append(target)
    return np.maximum(layer, 0)


def crossings(order: Sequence[Sequence[int]], forward: Pairs) -> int:
    """Number of pairs of edges between neighboring layers that cross."""
    place = {node: i for nodes in order for i, node in enumerate(nodes)}
    depth = {node: i for i, nodes in enumerate(order) for node in nodes}
    total = 0
    for layer in range(len(order) - 1):
        ends = np.array([(place[s], place[t]) for s, t in forward if depth[s] == layer]).reshape(-1, 2)
        left, right = ends[:, 0, None] < ends[:, 0], ends[:, 1, None] > ends[:, 1]
        total += int(np.count_nonzero(left & right))
    return total


def _order(layer: np.ndarray, forward: Pairs) -> list[list[int]]:
    """Nodes of each layer in their order: the best of some sweeps to the right and back."""
    order = [np.flatnonzero(layer == depth).tolist() for depth in range(int(layer.max(initial=-1)) + 1)]
    before, after = _neighbors(len(layer), forward)
    best, fewest = [list(nodes) for nodes in order], crossings(order, forward)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        to_right = sweep % 2 == 0
        for depth in range(1, len(order)) if to_right else range(len(order) - 2, -1, -1):
            fixed = {node: i for i, node in enumerate(order[depth - 1 if to_right else depth + 1])}
            order[depth] = _sorted_by_neighbors(order[depth], before if to_right else after, fixed)
        found = crossings(order, forward)
        if found < fewest:
            best, fewest = [list(nodes) for nodes in order], found
    return best


def _neighbors(nodes: int, forward: Pairs) -> tuple[list[list[int]], list[list[int]]]:
    before: list[list[int]] = [[] for _ in range(nodes)]
    after: list[list[int]] = [[] for _ in range(nodes)]
    for source, target in forward:
        before[target].append(source)
        after[source].append(target)
    return before, after


def _sorted_by_neighbors(nodes: list[int], neighbors: list[list[int]], place: dict[int, int]) -> list[int]:
    """Sorted by the mean place of their neighbors; a node without any keeps its place."""
    center = {
        node: float(np.mean([place[n] for n in neighbors[node]])) if neighbors[node] else float(i)
        for i, node in enumerate(nodes)
    }
    return sorted(nodes, key=center.__getitem__)


def _relaxed(order: list[list[int]], forward: Pairs, nodes: int) -> np.ndarray:
    """[nodes] y: each layer in turn as near to the mean of its neighbors as order and a gap of 1 allow."""
    y = np.zeros(nodes)
    for members in order:
        y[members] = np.arange(len(members)) - (len(members) - 1) / 2
    before, after = _neighbors(nodes, forward)
    for sweep in range(_RELAXATIONS):
        for members in order if sweep % 2 == 0 else reversed(order):
            wanted = [np.mean(y[near]) if (near := before[n] + after[n]) else y[n] for n in members]
            rank = np.arange(len(members))
            y[members] = isotonic_regression(np.array(wanted) - rank).x + rank
    return y


def _dot(nodes: int, edges: Pairs, starts: Sequence[int]) -> np.ndarray:
    lines = ["digraph {", "rankdir=LR; ranksep=0.8; nodesep=0.8; node [shape=circle, fixedsize=true, width=0.2]"]
    lines += ["{ rank=source; " + " ".join(f"{node};" for node in starts) + " }"]
    lines += [f"{node};" for node in range(nodes)]
    lines += [f"{source} -> {target};" for source, target in dict.fromkeys(edges)] + ["}"]
    done = subprocess.run(
        ["dot", "-Tplain"], input="\n".join(lines), capture_output=True, text=True, timeout=_DOT_SECONDS, check=True
    )
    return _plain_positions(done.stdout, nodes)


def _plain_positions(text: str, nodes: int) -> np.ndarray:
    """Places [nodes, 2] in dot's plain format: lines `node NAME X Y ...` in inches; y from 0."""
    place = np.full((nodes, 2), np.nan)
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["node"]:
            place[int(words[1])] = float(words[2]), float(words[3])
    if np.isnan(place).any():
        raise ValueError("dot left out a node")
    return place - place.min(axis=0)
