"""How far the trajectories of task groups overlap: what a graph of them can and cannot tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse import csgraph

from algorithms import RolloutBatch
from algorithms.graph import TrajectoryGraph
from algorithms.layout import joint
from algorithms.states import EncodedBatch, StateMatching, encode

SIZES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, None))  # bins of state group sizes and of degrees, both ends included


@dataclass(frozen=True, eq=False)
class GroupStatistics:
    """Statistics of a batch's trajectory graphs.

    groups   one row a task group: group, trajectories, solved, rows, and the columns of `overall`
    overall  the same over all rows:
             nodes            states, acted in or observed (overall: mean a group)
             merge_rate       1 - states acted in / rows
             revisits         share of rows whose state the same trajectory had been in before
             branching        distinct actions a state acted in
             choice_states    share of states acted in that were left by two actions or more
             cyclic_states    share of nodes on a cycle (loops included)
             group_size       rows a state acted in: what a state is averaged over
             degree           information propagation degree (GRAFT, appendix D.3): distinct trajectories whose outcome
                              enters the value of a row's state, final states being sinks; mean over rows
             degree_dedicated the same with shared SUCCESS and FAILURE sinks: nobody's end stops anybody's walk
             degree_visits    the same for plain state groups (GiGPO): trajectories that visit the state
    shares   per bin of `SIZES`, the share of rows: `group_size` and the three degrees
    cycles   share of groups with a cycle
    """

    groups: pd.DataFrame
    overall: Mapping[str, float]
    shares: Mapping[str, tuple[float, ...]]
    cycles: float


DEGREES = ("degree", "degree_dedicated", "degree_visits")
_OF_ACTED = ("branching", "choice_states", "group_size")


def group_statistics(batch: RolloutBatch, matching: StateMatching = "exact") -> GroupStatistics:
    """The statistics of a batch; linear in rows, some 0.1 s for 10^5."""
    encoded = encode(batch, matching)
    rows, nodes = _of_rows(encoded), _of_nodes(encoded)
    acted = nodes[nodes["acted"]]
    by_group = {
        "nodes": nodes.groupby("group").size().astype(float),
        "merge_rate": 1.0 - acted.groupby("group").size() / rows.groupby("group").size(),
        "revisits": rows.groupby("group")["revisit"].mean(),
        **{name: acted.groupby("group")[name].mean() for name in _OF_ACTED},
        "cyclic_states": nodes.groupby("group")["cyclic"].mean(),
        **{name: rows.groupby("group")[name].mean() for name in DEGREES},
    }
    overall = {
        "nodes": len(nodes) / encoded.layout.groups,
        "merge_rate": 1.0 - len(acted) / len(rows),
        "revisits": rows["revisit"].mean(),
        **{name: acted[name].mean() for name in _OF_ACTED},
        "cyclic_states": nodes["cyclic"].mean(),
        **{name: rows[name].mean() for name in DEGREES},
    }
    return GroupStatistics(
        groups=pd.concat([_identity(batch, encoded), pd.DataFrame(by_group)], axis=1),
        overall={key: float(value) for key, value in overall.items()},
        shares={key: _shares(rows[key].to_numpy()) for key in ("group_size", *DEGREES)},
        cycles=float((by_group["cyclic_states"] > 0).mean()),
    )


def _identity(batch: RolloutBatch, encoded: EncodedBatch) -> pd.DataFrame:
    """Name, trajectories, solved trajectories and rows of each group."""
    layout = encoded.layout
    first = np.searchsorted(layout.group, np.arange(layout.groups))
    of_trajectory = layout.group[layout.start]
    return pd.DataFrame(
        {
            "group": [str(name) for name in batch.column("group")[layout.order[first]]],
            "trajectories": np.bincount(of_trajectory, minlength=layout.groups),
            "solved": np.bincount(of_trajectory, weights=encoded.success[layout.start], minlength=layout.groups).astype(
                int
            ),
            "rows": np.bincount(layout.group, minlength=layout.groups),
        }
    )


def _of_rows(encoded: EncodedBatch) -> pd.DataFrame:
    layout = encoded.layout
    visit, visits = joint(layout.trajectory, encoded.state)
    first = np.full(visits, layout.rows)
    np.minimum.at(first, visit, np.arange(layout.rows))
    return pd.DataFrame(
        {
            "group": layout.group,
            "revisit": np.arange(layout.rows) > first[visit],
            "group_size": np.bincount(encoded.state, minlength=encoded.nodes)[encoded.state],
            **{name: count[encoded.state] for name, count in _degrees(encoded).items()},
        }
    )


def _of_nodes(encoded: EncodedBatch) -> pd.DataFrame:
    visits = np.bincount(encoded.state, minlength=encoded.nodes)
    choice, choices = joint(encoded.state, encoded.action)
    owner = np.empty(choices, dtype=np.int64)
    owner[choice] = encoded.state
    actions = np.bincount(owner, minlength=encoded.nodes)
    return pd.DataFrame(
        {
            "group": encoded.node_group,
            "acted": visits > 0,
            "group_size": visits,
            "branching": actions,
            "choice_states": actions > 1,
            "cyclic": _cyclic(encoded),
        }
    )


def _cyclic(encoded: EncodedBatch) -> np.ndarray:
    """[nodes] bool: on a cycle of executed transitions."""
    ends = (encoded.state, encoded.next_state)
    matrix = sparse.csr_matrix((np.ones(len(ends[0])), ends), shape=(encoded.nodes, encoded.nodes))
    _, component = csgraph.connected_components(matrix, directed=True, connection="strong")
    cyclic = np.bincount(component)[component] > 1
    cyclic[encoded.state[encoded.state == encoded.next_state]] = True
    return cyclic


def _degrees(encoded: EncodedBatch) -> dict[str, np.ndarray]:
    """[nodes] per name in `DEGREES`: how many trajectories tell a state its value."""
    layout = encoded.layout
    last = layout.last
    free = ~TrajectoryGraph.merged(encoded).is_sink[encoded.state]  # a final state's value stays, whatever leaves it
    merged = _edges(encoded.state[free], encoded.next_state[free])
    dedicated = _edges(encoded.state[~last], encoded.next_state[~last])
    nothing = _edges(encoded.state[:0], encoded.state[:0])
    return {
        "degree": _reached(encoded, encoded.next_state[last], last, *merged),
        "degree_dedicated": _reached(encoded, encoded.state[last], last, *dedicated),
        "degree_visits": _reached(encoded, encoded.state, np.ones_like(last), *nothing),
    }


def _edges(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct edges, sorted by source."""
    pairs = np.unique(np.column_stack([source, target]), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _reached(
    encoded: EncodedBatch, seeds: np.ndarray, rows: np.ndarray, source: np.ndarray, target: np.ndarray
) -> np.ndarray:
    """[nodes] distinct trajectories whose seed, one a chosen row, can be reached along the edges. Sets are bits."""
    layout = encoded.layout
    place = (layout.trajectory - layout.trajectory[np.searchsorted(layout.group, layout.group)])[rows]
    starts = np.flatnonzero(np.diff(source, prepend=-1))
    total = np.zeros(encoded.nodes, dtype=np.int64)
    for word in range(int(place.max()) // 64 + 1):
        here = place // 64 == word
        bits = np.zeros(encoded.nodes, dtype=np.uint64)
        np.bitwise_or.at(bits, seeds[here], np.left_shift(np.uint64(1), (place[here] % 64).astype(np.uint64)))
        total += np.bitwise_count(_handed_back(bits, source, target, starts))
    return total


def _handed_back(bits: np.ndarray, source: np.ndarray, target: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Each source gets the bits of all it leads to; edges sorted by source, `starts` the first edge of each."""
    if len(source) == 0:
        return bits
    nodes = source[starts]
    while True:
        fresh = bits[nodes] | np.bitwise_or.reduceat(bits[target], starts)
        if np.array_equal(fresh, bits[nodes]):
            return bits
        bits[nodes] = fresh


def _shares(values: np.ndarray) -> tuple[float, ...]:
    return tuple(
        float(np.mean((values >= low) & (values <= (np.inf if high is None else high)))) for low, high in SIZES
    )
