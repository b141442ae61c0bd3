"""G2PO: values of states from all their visits, compared at a node and over all edges (Wang et al. 2026,
arXiv 2606.22995)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms.estimators.base import (
    CommonOptions,
    Credit,
    Estimator,
    check_flag,
    check_number,
    episode_term,
    state_credit,
    state_normalize,
)
from algorithms.states import EncodedBatch
from algorithms.statistics import normalize, pool_mean


@dataclass(frozen=True)
class G2POOptions(CommonOptions):
    """gamma: discount in (0, 1]. step_weight: w of the step terms. node_centric, edge_centric: keep the term.
    group_aggregation: off, a row's own discounted outcome stands for the value of its state."""

    gamma: float = 0.95
    step_weight: float = 1.0
    node_centric: bool = True
    edge_centric: bool = True
    group_aggregation: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "gamma", low=0.0, high=1.0, above=True)
        check_number(self, "step_weight", low=0.0)
        for name in ("node_centric", "edge_centric", "group_aggregation"):
            check_flag(self, name)


def g2po(batch: EncodedBatch, options: G2POOptions) -> Credit:
    """`A = A^E + w (A_NC + A_EC)`; `V(u)` is the mean over visits of `gamma^(T-t) * success_reward * success`.

    With V' the value of the next row's state (after the last row `success_reward` if solved, else 0):
    `A_NC = normalize(V' - p*[not valid] | state group)`, `A_EC = normalize(V' - V(u) | task group)`. w = 0 is GRPO; a
    state met once has A_NC = 0.
    """
    layout = batch.layout
    current, following = _values(batch, options)
    step_term = np.zeros(layout.rows)
    if options.node_centric:
        step_term += state_normalize(batch, following - options.invalid_action_penalty * ~batch.valid, options)
    if options.edge_centric:
        step_term += normalize(following - current, layout.group, layout.groups, options.normalization)
    return state_credit(batch, episode_term(batch, options) + options.step_weight * step_term)


def _values(batch: EncodedBatch, options: G2POOptions) -> tuple[np.ndarray, np.ndarray]:
    """[rows] V of the row's state, and V' of the next row's state."""
    layout = batch.layout
    outcome = batch.success_reward * batch.success
    current = options.gamma ** (layout.length - layout.step) * outcome
    if options.group_aggregation:
        current = pool_mean(current, batch.state, batch.nodes)[batch.state]
    following = np.where(layout.last, outcome, np.roll(current, -1))
    return current, following


ESTIMATOR = Estimator("g2po", G2POOptions, g2po)
