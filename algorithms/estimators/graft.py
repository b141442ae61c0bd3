"""GRAFT: temporal differences on the trajectory graph, with Graph GAE (Yao et al. 2026, arXiv 2609.28963)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from algorithms.estimators.base import (
    CommonOptions,
    Credit,
    Estimator,
    check_choice,
    check_flag,
    check_number,
    state_credit,
)
from algorithms.graph import TrajectoryGraph
from algorithms.states import EncodedBatch
from algorithms.statistics import normalize
from algorithms.walks import Field, discounted_means

ROUNDING = 1e-12  # a difference of values in [0, 1] below this is rounding, and 0


@dataclass(frozen=True)
class GRAFTOptions(CommonOptions):
    """gamma: discount in (0, 1]. gae_lambda: in [0, 1]; the paper uses 0.95 on ALFWorld, 0.8 on WebShop, 0.6 on
    search-QA; 0 is the ablation. sinks: "merged" (observed final states) or "dedicated" (SUCCESS and FAILURE).
    normalize: off is the ablation without normalization."""

    gamma: float = 0.99
    gae_lambda: float = 0.95
    sinks: Literal["merged", "dedicated"] = "merged"
    normalize: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "gamma", low=0.0, high=1.0, above=True)
        check_number(self, "gae_lambda", low=0.0, high=1.0)
        check_choice(self, "sinks", ("merged", "dedicated"))
        check_flag(self, "normalize")


def graft(batch: EncodedBatch, options: GRAFTOptions) -> Credit:
    """`A_t + sum_{k=1}^{T-1-t} (gamma lambda)^k Abar_{t+k} - p/success_reward*[not valid]`, normalized by state group.

    `A_t = gamma V(s') - V(s)` with V solved exactly; Abar_{t+k} is its mean over all raw transitions that leave the
    set of nodes reached from s' in exactly k-1 moves. There is no episode term. A lone state keeps its sign:
    `x/(|x| + 1e-6)`. With dedicated sinks the A_t out of a node sum to zero, so Graph GAE is the one-step TD.
    """
    graph = TrajectoryGraph.dedicated(batch) if options.sinks == "dedicated" else TrajectoryGraph.merged(batch)
    residual = td_residual(graph, options.gamma)
    lookahead = graph_gae(batch, graph, residual, options)
    values = residual + lookahead - options.invalid_action_penalty / batch.success_reward * ~batch.valid
    if options.normalize:
        values = normalize(values, batch.state, batch.nodes, options.normalization, keep_lone_sign=True)
    return state_credit(batch, values, gae_contribution=float(np.mean(np.abs(lookahead))))


def td_residual(graph: TrajectoryGraph, gamma: float) -> np.ndarray:
    """`gamma V(s') - V(s)` [rows]."""
    value = graph.solve(gamma)
    residual = gamma * value[graph.target] - value[graph.source]
    return np.where(np.abs(residual) < ROUNDING, 0.0, residual)


def graph_gae(batch: EncodedBatch, graph: TrajectoryGraph, residual: np.ndarray, options: GRAFTOptions) -> np.ndarray:
    """The terms k >= 1 of Graph GAE [rows]; exactly 0 with dedicated sinks, known without a walk."""
    if options.sinks == "dedicated":
        return np.zeros(len(residual))
    total = np.bincount(graph.source, weights=residual, minlength=graph.nodes)
    total[np.abs(total) < ROUNDING * np.maximum(graph.out_count, 1)] = 0.0
    field = Field(graph.edges, batch.node_group, graph.out_count, total)
    horizon = batch.layout.length - 1 - batch.layout.step
    return discounted_means(field, graph.target, horizon, options.gamma * options.gae_lambda)


ESTIMATOR = Estimator("graft", GRAFTOptions, graft)
