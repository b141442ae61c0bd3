"""Means over the nodes reached in exactly k moves: the look-ahead of Graph GAE.

The set of nodes reached from u in exactly j moves obeys `R_0(u) = {u}`, `R_j(u) = union of R_{j-1}(v) over successors v
of u`. Sets are columns of a bit matrix, one bit a node of the group, so a move is one bitwise or over the edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from algorithms.graph import Edges

NEGLIGIBLE = 1e-15  # look-ahead stops where all later terms together are below this
CHUNK_BYTES = 1 << 17  # bit matrices handled at once, small enough for a second-level cache with what they need
HUB_NODES = 48  # successors beyond what this many nodes have are reduced in one go


@dataclass(frozen=True, eq=False)
class Field:
    """What is averaged over reached nodes: per node, the number of raw transitions out of it and the sum of x there.

    edges       distinct transitions, sorted by source, none between groups
    node_group  [nodes] group of each node, non-decreasing
    count       [nodes] integers;  total [nodes] float
    """

    edges: Edges
    node_group: np.ndarray
    count: np.ndarray
    total: np.ndarray

    @cached_property
    def group_starts(self) -> np.ndarray:
        """[groups] first node of each group, in a field whose groups are numbered without gaps."""
        return np.flatnonzero(np.diff(self.node_group, prepend=-1))


def discounted_means(field: Field, start: np.ndarray, horizon: np.ndarray, factor: float) -> np.ndarray:
    """`sum_{k=1}^{h} factor^k * mean_k(s)` for each query (s, h): [queries].

    mean_k(s) is the sum of `total` over the sum of `count`, both over the set of nodes reached from s in exactly k-1
    moves; where that count is 0 the sum ends.

    start  [queries] node s;  horizon [queries] h >= 0;  0 <= factor <= 1

    Cost: a group with n nodes and e edges takes e*n/64 word operations a level and n^2/8 bytes; a group whose totals
    are all 0 takes nothing.
    """
    result = np.zeros(len(start))
    horizon = np.minimum(horizon, _useful_levels(factor))
    groups = _walked_groups(field)
    rank = np.full(int(field.node_group[-1]) + 1, -1)
    rank[groups] = np.arange(len(groups))
    queries = np.flatnonzero((horizon > 0) & (rank[field.node_group[start]] >= 0))
    if len(queries) == 0:
        return result
    local, new_id = _relabel(field, rank)
    queries = queries[np.argsort(new_id[start[queries]], kind="stable")]
    begin = new_id[start[queries]]
    for first, stop in _chunks(local):
        low, high = np.searchsorted(begin, (first, stop))
        if low == high:  # its trajectories have nothing to look ahead to
            continue
        mine = queries[low:high]
        result[mine] = _walk(_cut(local, first, stop), begin[low:high] - first, horizon[mine], factor)
    return result


def _useful_levels(factor: float) -> int:
    """Levels after which `sum factor^k` of the rest, of means at most 1, is negligible."""
    if factor <= 0.0:
        return 0
    if factor >= 1.0:
        return np.iinfo(np.int64).max
    return math.ceil(math.log(NEGLIGIBLE * (1.0 - factor)) / math.log(factor))


def _walked_groups(field: Field) -> np.ndarray:
    """Groups with a total that is not 0, by number of nodes, so that neighbors need bit rows of like length."""
    walked = np.unique(field.node_group[field.total != 0])
    sizes = np.bincount(field.node_group)
    return walked[np.argsort(sizes[walked], kind="stable")]


def _relabel(field: Field, rank: np.ndarray) -> tuple[Field, np.ndarray]:
    """The field on the walked groups alone, in order of rank, nodes with a total first in their group; and the new
    number of each old node (-1 where dropped)."""
    node_rank = rank[field.node_group]
    order = np.lexsort((field.total == 0, node_rank))
    order = order[np.searchsorted(node_rank[order], 0) :]
    new_id = np.full(len(node_rank), -1)
    new_id[order] = np.arange(len(order))
    source, target = new_id[field.edges.source], new_id[field.edges.target]
    kept = np.flatnonzero(source >= 0)
    kept = kept[np.argsort(source[kept], kind="stable")]
    edges = Edges(source[kept], target[kept], field.edges.count[kept])
    return Field(edges, node_rank[order], field.count[order], field.total[order]), new_id


def _chunks(field: Field) -> Iterator[tuple[int, int]]:
    """Node ranges of whole groups whose bit matrix stays within CHUNK_BYTES (or is one group)."""
    bounds = [*field.group_starts.tolist(), len(field.node_group)]
    first = bounds[0]
    for begin, end in pairwise(bounds):
        if begin > first and (end - first) * (end - begin) > 8 * CHUNK_BYTES:
            yield first, begin
            first = begin
    yield first, bounds[-1]


def _cut(field: Field, first: int, stop: int) -> Field:
    """The field on the nodes first..stop-1, whole groups, renumbered from 0."""
    low, high = np.searchsorted(field.edges.source, (first, stop))
    edges = Edges(
        field.edges.source[low:high] - first, field.edges.target[low:high] - first, field.edges.count[low:high]
    )
    group = field.node_group[first:stop] - field.node_group[first]
    return Field(edges, group, field.count[first:stop], field.total[first:stop])


def _walk(field: Field, start: np.ndarray, horizon: np.ndarray, factor: float) -> np.ndarray:
    """`discounted_means` for the queries of one chunk, a level at a time for all its nodes.

    The sets of a group repeat for good once no set of the group changes in a move; then the rest is a geometric sum,
    and the group leaves the chunk.
    """
    result = np.empty(len(start))
    active = np.argsort(horizon, kind="stable")  # queries that have not ended, those that end first in front
    moves, means = _Moves.build(field), _Means.build(field)
    reached = means.identity()
    mean = means.of(reached)
    running = factor * mean
    for level in range(1, int(horizon.max()) + 1):
        ended = active[: np.searchsorted(horizon[active], level, side="right")]
        result[ended] = running[start[ended]]
        active = active[len(ended) :]
        if len(active) == 0:
            break
        moved = moves.move(reached)
        settled = _settled_groups(field, moved != reached)
        reached = moved
        if 2 * settled.sum() >= len(settled):
            done = settled[field.node_group[start[active]]]
            finished = active[done]
            rest = _geometric(factor, level + 1, horizon[finished])
            result[finished] = running[start[finished]] + mean[start[finished]] * rest
            active = active[~done]
            if len(active) == 0:
                break
            field, kept, new_id = _drop_groups(field, settled)
            moves, means = _Moves.build(field), _Means.build(field)
            start = new_id[start]
            reached, running = reached[: means.words, kept], running[kept]
        mean = means.of(reached)
        running = running + factor ** (level + 1) * mean
    return result


def _settled_groups(field: Field, changed: np.ndarray) -> np.ndarray:
    """[groups] bool: no set of the group changed; changed [words, nodes]."""
    return ~np.logical_or.reduceat(changed.any(axis=0), field.group_starts)


def _geometric(factor: float, first: int, last: np.ndarray) -> np.ndarray:
    """`sum_{k=first}^{last} factor^k` [queries]."""
    terms = last - first + 1
    return terms * 1.0 if factor == 1.0 else factor**first * (1.0 - factor**terms) / (1.0 - factor)


def _drop_groups(field: Field, dropped: np.ndarray) -> tuple[Field, np.ndarray, np.ndarray]:
    """The field without some groups, the old numbers of its nodes, and the new numbers of all old nodes (-1: gone)."""
    kept = np.flatnonzero(~dropped[field.node_group])
    new_id = np.full(len(field.node_group), -1)
    new_id[kept] = np.arange(len(kept))
    new_group = np.cumsum(~dropped) - 1
    edge = np.flatnonzero(new_id[field.edges.source] >= 0)
    edges = Edges(new_id[field.edges.source[edge]], new_id[field.edges.target[edge]], field.edges.count[edge])
    return Field(edges, new_group[field.node_group[kept]], field.count[kept], field.total[kept]), kept, new_id


@dataclass(frozen=True, eq=False)
class _Moves:
    """Successor lists, laid out so that a move is a few whole-array operations.

    Nodes with a way out are ranked by how many successors they have, most first. layers[j] holds the j-th successor
    of each node that has one: a prefix of the ranking. The many successors of the few hubs are in `hubs`.
    """

    layers: list[np.ndarray]
    hubs: np.ndarray  # [edges left] targets, those of one node adjacent
    hub_starts: np.ndarray  # first of each hub
    place: np.ndarray  # [nodes] rank of a node, or the number of ranked nodes where there is no way out

    @classmethod
    def build(cls, field: Field) -> _Moves:
        edges, nodes = field.edges, len(field.node_group)
        degree = np.bincount(edges.source, minlength=nodes)
        ranking = np.argsort(-degree, kind="stable")
        movers = int(np.count_nonzero(degree))
        rank = np.empty(nodes, dtype=np.int64)
        rank[ranking] = np.arange(nodes)
        nth = np.arange(len(edges.source)) - (np.cumsum(degree) - degree)[edges.source]
        width = np.bincount(nth)  # nodes that have a j-th successor
        depth = int(np.count_nonzero(width >= HUB_NODES)) or 1
        flat = np.lexsort((rank[edges.source], np.minimum(nth, depth)))
        layers = np.split(edges.target[flat], np.cumsum(width[:depth]))
        left = degree[ranking][degree[ranking] > depth] - depth
        return cls(layers[:depth], layers[depth], np.cumsum(left) - left, np.minimum(rank, movers))

    def move(self, reached: np.ndarray) -> np.ndarray:
        """One more move: each node's set becomes the union of its successors' sets."""
        moved = np.zeros((len(reached), len(self.layers[0]) + 1), dtype=np.uint64)
        for targets in self.layers:
            moved[:, : len(targets)] |= reached.take(targets, axis=1)
        if len(self.hubs):
            found = np.bitwise_or.reduceat(reached.take(self.hubs, axis=1), self.hub_starts, axis=1)
            moved[:, : len(self.hub_starts)] |= found
        return moved.take(self.place, axis=1)


@dataclass(frozen=True, eq=False)
class _Means:
    """Weighted counts of bit sets; `words` 64-bit words hold the largest group.

    bit     [nodes] place of a node in its group
    masks   [digits, words, nodes] bits of the nodes, of the group, whose `count` has a binary digit
    worth   [digits * words] 2^digit
    tables  per byte of the set: [groups * 256] sum of `total` over the bits of the byte;  row [nodes] 256 * group
    """

    bit: np.ndarray
    words: int
    masks: np.ndarray
    worth: np.ndarray
    tables: list[np.ndarray]
    row: np.ndarray

    @classmethod
    def build(cls, field: Field) -> _Means:
        group = field.node_group
        bit = np.arange(len(group)) - field.group_starts[group]
        words = int(bit.max()) // 64 + 1
        masks = _count_masks(field, bit, words)
        worth = np.repeat(2.0 ** np.arange(len(masks)), words)
        return cls(bit, words, masks, worth, _total_tables(field, bit), 256 * group)

    def identity(self) -> np.ndarray:
        """Bit matrix [words, nodes] of the sets {u}."""
        return _bit_columns(self.bit, np.arange(len(self.bit)), (self.words, len(self.bit)))

    def of(self, reached: np.ndarray) -> np.ndarray:
        """[nodes] sum of totals over sum of counts of each set, 0 where nothing leaves it."""
        bits = np.bitwise_count(reached & self.masks)
        count = self.worth @ bits.reshape(len(self.worth), -1).astype(np.float64)
        total = np.zeros(reached.shape[1])
        for place, table in enumerate(self.tables):
            byte = (reached[place // 8] >> np.uint64(8 * (place % 8))) & np.uint64(255)
            total += table.take(self.row + byte.astype(np.int64))
        return total / np.maximum(count, 1.0)


def _bit_columns(bit: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Bit matrix [words, columns] with the given bits set."""
    matrix = np.zeros(shape, dtype=np.uint64)
    np.bitwise_or.at(matrix, (bit // 64, column), np.uint64(1) << (bit % 64).astype(np.uint64))
    return matrix


def _count_masks(field: Field, bit: np.ndarray, words: int) -> np.ndarray:
    group, digits = field.node_group, int(field.count.max()).bit_length()
    masks = np.empty((digits, words, len(group)), dtype=np.uint64)
    for digit in range(digits):
        chosen = np.flatnonzero(field.count >> digit & 1)
        masks[digit] = _bit_columns(bit[chosen], group[chosen], (words, int(group[-1]) + 1)).take(group, axis=1)
    return masks


def _total_tables(field: Field, bit: np.ndarray) -> list[np.ndarray]:
    group = field.node_group
    members = np.arange(256)[:, None] >> np.arange(8) & 1  # [256, 8]
    chosen = np.flatnonzero(field.total)
    tables = []
    for place in range(int(bit[chosen].max()) // 8 + 1):
        here = chosen[bit[chosen] // 8 == place]
        weights = np.zeros((int(group[-1]) + 1, 8))
        weights[group[here], bit[here] % 8] = field.total[here]
        tables.append((weights @ members.T).ravel())
    return tables
