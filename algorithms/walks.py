"""Means over the nodes reached in exactly k moves: the look-ahead of Graph GAE.

The set of nodes reached from u in exactly j moves obeys `R_0(u) = {u}`, `R_j(u) = union of R_{j-1}(v) over successors v
of u`. Sets are columns of a bit matrix, one bit a node of the group, so a move is one bitwise or over the edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from algorithms.graph import Edges

NEGLIGIBLE = 1e-15  # look-ahead stops where all later terms together are below this
CHUNK_BYTES = 1 << 20  # bit matrices handled at once; about a second-level cache


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
    for first, stop in _chunks(local.node_group):
        low, high = np.searchsorted(begin, (first, stop))
        mine = queries[low:high]
        result[mine] = _walk(_Chunk.cut(local, first, stop), begin[low:high] - first, horizon[mine], factor)
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


def _chunks(node_group: np.ndarray) -> Iterator[tuple[int, int]]:
    """Node ranges of whole groups whose bit matrix stays within CHUNK_BYTES (or is one group)."""
    bounds = np.append(np.flatnonzero(np.diff(node_group, prepend=-1)), len(node_group)).tolist()
    first = bounds[0]
    for begin, end in zip(bounds, bounds[1:], strict=False):
        if begin > first and (end - first) * (end - begin) > 8 * CHUNK_BYTES:
            yield first, begin
            first = begin
    yield first, bounds[-1]


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Some groups, ready to walk; W is the words of the largest group.

    bit          [nodes] place of a node in its group
    movers       [m] nodes with a way out;  first [m] first edge of each;  target [edges]
    count_masks  per binary digit b of `count`: [W, nodes] bits of the group's nodes whose count has digit b
    total_table  per byte: [groups * 256] sum of `total` over the bits of a byte;  row [nodes] 256 * group
    """

    count: np.ndarray
    total: np.ndarray
    bit: np.ndarray
    movers: np.ndarray
    first: np.ndarray
    target: np.ndarray
    count_masks: list[np.ndarray]
    total_table: list[np.ndarray]
    row: np.ndarray

    @classmethod
    def cut(cls, field: Field, first: int, stop: int) -> _Chunk:
        group = field.node_group[first:stop] - field.node_group[first]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        bit = np.arange(stop - first) - starts[group]
        count, total = field.count[first:stop], field.total[first:stop]
        low, high = np.searchsorted(field.edges.source, (first, stop))
        movers, first_edge = np.unique(field.edges.source[low:high] - first, return_index=True)
        return cls(
            count=count,
            total=total,
            bit=bit,
            movers=movers,
            first=first_edge,
            target=field.edges.target[low:high] - first,
            count_masks=_count_masks(count, bit, group),
            total_table=_total_table(total, bit, group),
            row=256 * group,
        )

    def identity(self) -> np.ndarray:
        """Bit matrix [W, nodes] of the sets {u}."""
        return _bit_rows(self.bit, np.arange(len(self.bit)), len(self.bit), _words(self.bit))

    def move(self, reached: np.ndarray) -> np.ndarray:
        """One more move: the union of the successors' sets."""
        moved = np.zeros_like(reached)
        moved[:, self.movers] = np.bitwise_or.reduceat(reached[:, self.target], self.first, axis=1)
        return moved

    def means(self, reached: np.ndarray) -> np.ndarray:
        """[nodes] mean over each set, 0 where nothing leaves it."""
        count = np.zeros(reached.shape[1], dtype=np.int64)
        for digit, mask in enumerate(self.count_masks):
            count += np.bitwise_count(reached & mask).sum(axis=0, dtype=np.int64) << digit
        total = np.zeros(reached.shape[1])
        for place, table in enumerate(self.total_table):
            byte = (reached[place // 8] >> np.uint64(8 * (place % 8))) & np.uint64(255)
            total += table[self.row + byte.astype(np.int64)]
        return total / np.maximum(count, 1)


def _walk(chunk: _Chunk, start: np.ndarray, horizon: np.ndarray, factor: float) -> np.ndarray:
    result = np.empty(len(start))
    order = np.argsort(horizon, kind="stable")
    levels = int(horizon[order[-1]])
    ends = np.searchsorted(horizon[order], np.arange(1, levels + 2))
    reached = chunk.identity()
    running = factor * chunk.total / np.maximum(chunk.count, 1)
    for level in range(1, levels + 1):
        if level > 1:
            reached = chunk.move(reached)
            running += factor**level * chunk.means(reached)
        done = order[ends[level - 1] : ends[level]]
        result[done] = running[start[done]]
    return result


def _words(bit: np.ndarray) -> int:
    return int(bit.max()) // 64 + 1


def _bit_rows(bit: np.ndarray, row: np.ndarray, rows: int, words: int) -> np.ndarray:
    """Bit matrix [words, rows] with the given bits set."""
    matrix = np.zeros((words, rows), dtype=np.uint64)
    np.bitwise_or.at(matrix, (bit // 64, row), np.uint64(1) << (bit % 64).astype(np.uint64))
    return matrix


def _count_masks(count: np.ndarray, bit: np.ndarray, group: np.ndarray) -> list[np.ndarray]:
    masks = []
    for digit in range(int(count.max()).bit_length()):
        chosen = np.flatnonzero(count >> digit & 1)
        per_group = _bit_rows(bit[chosen], group[chosen], int(group[-1]) + 1, _words(bit))
        masks.append(per_group[:, group])
    return masks


def _total_table(total: np.ndarray, bit: np.ndarray, group: np.ndarray) -> list[np.ndarray]:
    members = np.arange(256)[:, None] >> np.arange(8) & 1  # [256, 8]
    chosen = np.flatnonzero(total)
    tables = []
    for place in range(int(bit[chosen].max()) // 8 + 1):
        here = chosen[bit[chosen] // 8 == place]
        weights = np.zeros((int(group[-1]) + 1, 8))
        weights[group[here], bit[here] % 8] = total[here]
        tables.append((weights @ members.T).ravel())
    return tables
