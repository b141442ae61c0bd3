"""The graph that the trajectories of a task group draw together.

Nodes are states, raw transitions are executed steps. All groups of a batch live in one `TrajectoryGraph` without an
edge between them (sinks have no way out), so each operation is one pass over arrays for the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import splu

from algorithms.states import EncodedBatch


@dataclass(frozen=True, eq=False)
class TrajectoryGraph:
    """Raw transitions of a batch between nodes, and the values that sinks hold.

    source, target  [rows] ends of the transition of each row (sorted order)
    nodes           number of nodes; sinks included
    sink_value      [nodes] value in [0, 1] of a sink, NaN elsewhere. A sink keeps its value whatever leaves it
    """

    source: np.ndarray
    target: np.ndarray
    nodes: int
    sink_value: np.ndarray

    @classmethod
    def to_success(cls, batch: EncodedBatch) -> TrajectoryGraph:
        """The last step of a solved trajectory leads to SUCCESS (value 1, the last node); failures lead nowhere new."""
        target = np.where(batch.layout.last & batch.success, batch.nodes, batch.next_state)
        sink_value = np.full(batch.nodes + 1, np.nan)
        sink_value[-1] = 1.0
        return cls(batch.state, target, batch.nodes + 1, sink_value)

    @classmethod
    def dedicated(cls, batch: EncodedBatch) -> TrajectoryGraph:
        """The last step of a trajectory leads to SUCCESS (value 1, node `nodes - 2`) or FAILURE (0, `nodes - 1`).

        One pair of sinks serves all groups: nothing leaves a sink, so groups stay apart.
        """
        outcome = np.where(batch.success, batch.nodes, batch.nodes + 1)
        target = np.where(batch.layout.last, outcome, batch.next_state)
        sink_value = np.full(batch.nodes + 2, np.nan)
        sink_value[-2:] = (1.0, 0.0)
        return cls(batch.state, target, batch.nodes + 2, sink_value)

    @classmethod
    def merged(cls, batch: EncodedBatch) -> TrajectoryGraph:
        """The observed final state of a trajectory is a sink of value 1 (solved) or 0; shared ends hold the mean."""
        last = batch.layout.last
        end = batch.next_state[last]
        count = np.bincount(end, minlength=batch.nodes)
        total = np.bincount(end, weights=batch.success[last], minlength=batch.nodes)
        with np.errstate(invalid="ignore"):
            sink_value = total / count  # 0/0: not a sink
        return cls(batch.state, batch.next_state, batch.nodes, sink_value)

    @cached_property
    def is_sink(self) -> np.ndarray:
        """[nodes] bool."""
        return ~np.isnan(self.sink_value)

    @cached_property
    def out_count(self) -> np.ndarray:
        """[nodes] raw transitions that leave each node."""
        return np.bincount(self.source, minlength=self.nodes)

    @cached_property
    def edges(self) -> Edges:
        """Distinct transitions with their counts, sorted by source."""
        shape = (self.nodes, self.nodes)
        matrix = sparse.csr_matrix((np.ones(len(self.source)), (self.source, self.target)), shape=shape)
        source = np.repeat(np.arange(self.nodes), np.diff(matrix.indptr))
        return Edges(source, matrix.indices.astype(np.int64), matrix.data)

    @cached_property
    def distance(self) -> np.ndarray:
        """[nodes] fewest steps to a sink of positive value (inf where there is no way), walking through no sink."""
        return self._distance_to(np.flatnonzero(self.sink_value > 0))

    def _distance_to(self, goals: np.ndarray) -> np.ndarray:
        """Breadth-first search backwards from an extra node that leads to all goals."""
        edges = self.edges
        free = ~self.is_sink[edges.source]
        tail = np.concatenate([edges.target[free], np.full(len(goals), self.nodes)])
        head = np.concatenate([edges.source[free], goals])
        backwards = sparse.csr_matrix((np.ones(len(tail)), (tail, head)), shape=(self.nodes + 1, self.nodes + 1))
        order, parent = csgraph.breadth_first_order(backwards, self.nodes)
        distance = np.full(self.nodes + 1, np.inf)
        distance[order] = _depths(order, parent) - 1.0
        return distance[:-1]

    def solve(self, discount: float) -> np.ndarray:
        """`V(u) = discount * mean over raw transitions u -> v of V(v)`, V = sink value at sinks; exact. [nodes]

        Nodes that reach no sink of positive value have V = 0.
        """
        edges = self.edges
        return self._solve(discount * edges.count / self.out_count[edges.source])

    def solve_power(self, discount: float, power: float) -> np.ndarray:
        """`V(u) = discount * (mean V(v)^power)^(1/power)`; `inf` is the maximum over v, `discount^distance`.

        Sinks must hold 0 or 1. With `V = discount^d * y` and d the distance, `y^power` solves a linear system whose
        weights `p * discount^(power*(d(v) + 1 - d(u)))` are at most 1, so that a large power does not underflow.
        """
        reach = np.isfinite(self.distance)
        best = np.zeros(self.nodes)
        best[reach] = discount ** self.distance[reach]
        if np.isinf(power):
            return best
        edges = self.edges
        weight = edges.count / self.out_count[edges.source]
        useful = reach[edges.target]  # other edges lead to V = 0 and enter no equation
        detour = self.distance[edges.target[useful]] + 1.0 - self.distance[edges.source[useful]]
        weight[useful] *= discount ** (power * detour)
        return best * self._solve(weight) ** (1.0 / power)

    def _solve(self, weight: np.ndarray) -> np.ndarray:
        """V at sinks given, elsewhere `V(u) = sum over edges u -> v of weight * V(v)`; weight [edges]."""
        value = np.where(self.is_sink, self.sink_value, 0.0)
        unknown = np.flatnonzero(np.isfinite(self.distance) & ~self.is_sink)
        if len(unknown) == 0:
            return value
        place = np.full(self.nodes, -1)
        place[unknown] = np.arange(len(unknown))
        edges = self.edges
        row, column = place[edges.source], place[edges.target]
        inner = (row >= 0) & (column >= 0)
        border = (row >= 0) & self.is_sink[edges.target]
        known = np.bincount(row[border], weights=weight[border] * value[edges.target[border]], minlength=len(unknown))
        size = (len(unknown), len(unknown))
        system = sparse.identity(len(unknown), format="csc") - sparse.csc_matrix(
            (weight[inner], (row[inner], column[inner])), shape=size
        )
        # An M-matrix: elimination on the diagonal is stable and loses no digits of small values.
        factors = splu(
            system, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, relax=1, panel_size=1, options={"SymmetricMode": True}
        )
        value[unknown] = factors.solve(known)
        return value


@dataclass(frozen=True, eq=False)
class Edges:
    """Distinct transitions: source, target [edges] (sorted by source) and the number of raw transitions, float."""

    source: np.ndarray
    target: np.ndarray
    count: np.ndarray


def _depths(order: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Depth of each node of a breadth-first order, given the parent of each node: a level at a time."""
    place = np.empty(len(parent), dtype=np.int64)
    place[order] = np.arange(len(order))
    parents = place[parent[order[1:]]]  # non-decreasing: children are found in the order of their parents
    bounds = [0, 1]
    while bounds[-1] < len(order):
        bounds.append(int(np.searchsorted(parents, bounds[-1])) + 1)
    return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
