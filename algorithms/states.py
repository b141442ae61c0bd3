"""State keys to integer nodes: which rows of a task group count as the same state.

exact      equal strings (ALFWorld, WebShop)
ratcliff   difflib ratio >= 0.9 against the first member of each cluster, first fit (search-QA in GiGPO)
embedding  cosine > 0.9 against the first member of each cluster, first fit (search-QA in GRAFT)

First fit depends on the order in which keys are met. Keys of a group are met by the earliest step they occur at, then
by text, so the clusters don't depend on the order of rows or trajectories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np

from algorithms.layout import Layout, compact, encode_text
from algorithms.rollouts import RolloutBatch

StateMatching = Literal["exact", "ratcliff", "embedding"]
Embed = Callable[[Sequence[str]], np.ndarray]  # texts [n] -> vectors [n, dim]

RATCLIFF_RATIO = 0.9
EMBEDDING_COSINE = 0.9


@dataclass(frozen=True, eq=False)
class EncodedBatch:
    """A batch as integers, rows sorted as in `layout`. This is all that an estimator reads.

    state, next_state  [rows] node acted in, node observed after the action; a node belongs to one group, the nodes of
                       a group are adjacent numbers
    node_group         [nodes] the group of each node
    reward             [rows] environment reward;  valid, success [rows] bool
    success_reward     what a solved task pays
    action_text        [rows] the commands as sent; estimators compare them as the numbers in `action`
    """

    layout: Layout
    state: np.ndarray
    next_state: np.ndarray
    node_group: np.ndarray
    reward: np.ndarray
    valid: np.ndarray
    success: np.ndarray
    success_reward: float
    action_text: np.ndarray

    @cached_property
    def action(self) -> np.ndarray:
        """[rows] number of the command sent: equal texts, equal numbers 0..n-1 (over all groups)."""
        return encode_text(self.action_text)[0]

    @property
    def nodes(self) -> int:
        """Number of nodes, over states acted in and states observed."""
        return len(self.node_group)


def encode(batch: RolloutBatch, matching: StateMatching = "exact", embed: Embed | None = None) -> EncodedBatch:
    """Integer view of a batch under a state matching, computed once per batch and matching.

    `embedding` needs `embed`, a callable from texts [n] to vectors [n, dim]; without it a ValueError is raised.
    """
    if matching == "embedding" and embed is None:
        raise ValueError("state_matching='embedding' needs embed=, a callable from a list of texts to vectors [n, dim]")
    key = (matching, embed if matching == "embedding" else None)
    if key not in batch._encodings:
        batch._encodings[key] = _encode(batch, matching, embed)
    encoded: EncodedBatch = batch._encodings[key]
    return encoded


def _encode(batch: RolloutBatch, matching: StateMatching, embed: Embed | None) -> EncodedBatch:
    layout = batch.layout
    order = layout.order
    group = np.concatenate([layout.group, layout.group])
    key, table = _keys(batch)
    node, nodes = compact(group * len(table) + key, layout.groups * len(table))
    node_group = np.empty(nodes, dtype=np.int64)
    node_group[node] = group
    if matching != "exact":
        texts = _node_texts(node, key, nodes, list(table))
        seen = _first_seen(node, np.concatenate([layout.step, layout.step + 1]), nodes)
        merged = _representatives(texts, seen, node_group, matching, embed)
        node, nodes = compact(merged[node], nodes)
        node_group = np.empty(nodes, dtype=np.int64)
        node_group[node] = group
    return EncodedBatch(
        layout=layout,
        state=node[: batch.rows],
        next_state=node[batch.rows :],
        node_group=node_group,
        reward=batch.column("reward")[order],
        valid=batch.column("valid")[order],
        success=batch.column("success")[order],
        success_reward=batch.success_reward,
        action_text=batch.column("action")[order],
    )


def _keys(batch: RolloutBatch) -> tuple[np.ndarray, dict[str, int]]:
    """Integers [2*rows] for the state keys and then the next-state keys, in sorted order, and the table behind them."""
    layout = batch.layout
    state, following = batch.column("state")[layout.order], batch.column("next_state")[layout.order]
    # Nearly always the key observed is the key acted in next: comparing two texts is cheaper than hashing one.
    repeated = np.append(following[:-1] == state[1:], False).astype(bool)
    codes, table = encode_text(chain(state.tolist(), following[~repeated].tolist()))
    next_code = np.empty(batch.rows, dtype=np.int64)
    next_code[~repeated] = codes[batch.rows :]
    next_code[repeated] = codes[1 : batch.rows][repeated[:-1]]
    return np.concatenate([codes[: batch.rows], next_code]), table


def _node_texts(node: np.ndarray, key: np.ndarray, nodes: int, table: list[str]) -> list[str]:
    node_key = np.empty(nodes, dtype=np.int64)
    node_key[node] = key
    return [table[k] for k in node_key]


def _first_seen(node: np.ndarray, step: np.ndarray, nodes: int) -> np.ndarray:
    first = np.full(nodes, np.iinfo(np.int64).max)
    np.minimum.at(first, node, step)
    return first


def _representatives(
    texts: list[str], seen: np.ndarray, node_group: np.ndarray, matching: StateMatching, embed: Embed | None
) -> np.ndarray:
    """[nodes] the first member of each node's cluster."""
    vectors = _unit_vectors(texts, embed) if embed is not None and matching == "embedding" else None
    leader = np.arange(len(texts))
    for members in np.split(leader, np.flatnonzero(np.diff(node_group)) + 1):
        order = sorted(members.tolist(), key=lambda n: (seen[n], texts[n]))
        fitted = _fit_ratcliff([texts[n] for n in order]) if vectors is None else _fit_cosine(vectors[order])
        leader[order] = np.asarray(order)[fitted]
    return leader


def _fit_ratcliff(texts: list[str]) -> list[int]:
    """Place of the first earlier text that each text resembles, else its own place."""
    leaders: list[int] = []
    fitted = []
    matcher = SequenceMatcher(None)
    for place, text in enumerate(texts):
        matcher.set_seq2(text)  # the side that difflib indexes
        found = next((leader for leader in leaders if _resembles(matcher, texts[leader])), None)
        if found is None:
            leaders.append(place)
        fitted.append(place if found is None else found)
    return fitted


def _resembles(matcher: SequenceMatcher[str], text: str) -> bool:
    matcher.set_seq1(text)
    # The two quick ratios are upper bounds of the ratio.
    quick = matcher.real_quick_ratio() >= RATCLIFF_RATIO and matcher.quick_ratio() >= RATCLIFF_RATIO
    return quick and matcher.ratio() >= RATCLIFF_RATIO


def _unit_vectors(texts: list[str], embed: Embed) -> np.ndarray:
    distinct = list(dict.fromkeys(texts))
    vectors = np.asarray(embed(distinct), dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(distinct) or not np.isfinite(vectors).all():
        raise ValueError(f"embed must return finite vectors [{len(distinct)}, dim], got shape {vectors.shape}")
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.where(norm > 0, norm, 1.0)
    place = {text: i for i, text in enumerate(distinct)}
    return units[[place[text] for text in texts]]


def _fit_cosine(units: np.ndarray) -> list[int]:
    """Place of the first earlier leader within the cosine of each unit vector [n, dim], else its own place."""
    leaders: list[int] = []
    fitted = []
    for place, unit in enumerate(units):
        close = np.flatnonzero(units[leaders] @ unit > EMBEDDING_COSINE) if leaders else np.empty(0, dtype=np.int64)
        if len(close) == 0:
            leaders.append(place)
        fitted.append(leaders[close[0]] if len(close) else place)
    return fitted
