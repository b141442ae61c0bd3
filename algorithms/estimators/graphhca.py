"""GraphHCA: hindsight credit from the success potential of states (Zhu et al. 2026)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms.estimators.base import (
    CommonOptions,
    Credit,
    Estimator,
    check_number,
    episode_term,
    state_credit,
    state_normalize,
)
from algorithms.graph import TrajectoryGraph
from algorithms.states import EncodedBatch


@dataclass(frozen=True)
class GraphHCAOptions(CommonOptions):
    """gamma: discount in (0, 1]. floor: least potential, in (0, 1]. power: >= 1 of the power mean over successors, 1
    is the expectation, `inf` (a float or the word) the maximum. step_weight, episode_weight: of the two terms."""

    gamma: float = 0.95
    floor: float = 1e-2
    power: float = 1.0
    step_weight: float = 1.0
    episode_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "gamma", low=0.0, high=1.0, above=True)
        check_number(self, "floor", low=0.0, high=1.0, above=True)
        check_number(self, "power", low=1.0, high=np.inf)
        check_number(self, "step_weight", low=0.0)
        check_number(self, "episode_weight", low=0.0)


def graphhca(batch: EncodedBatch, options: GraphHCAOptions) -> Credit:
    """`A = episode_weight A^E + w normalize(l | state group)`, `l = Psi(s') - Psi(s)`, `Psi = log max(Phi, floor)`.

    Phi is 1 at SUCCESS, 0 at FAILURE, else `gamma (E[Phi(s')^power])^(1/power)` under the empirical frequencies of
    the raw transitions, solved exactly. Credits telescope: over a trajectory they sum to `Psi(s_T) - Psi(s_0)`, and
    `|l| <= log(1/floor)`. w = 0 is GRPO; `episode_weight = 0` the "A^S only" ablation. A penalty for invalid actions
    enters through the episode term alone. Lone and constant state groups have no step term.
    """
    graph = TrajectoryGraph.dedicated(batch)
    credit = step_credit(graph, options)
    step_term = state_normalize(batch, credit, options)
    advantages = options.episode_weight * episode_term(batch, options) + options.step_weight * step_term
    unreachable = float(np.mean(np.isinf(graph.distance[graph.source])))
    return state_credit(batch, advantages, unreachable_fraction=unreachable)


def potential(graph: TrajectoryGraph, options: GraphHCAOptions) -> np.ndarray:
    """Phi [graph nodes], in [0, 1]."""
    return graph.solve(options.gamma) if options.power == 1 else graph.solve_power(options.gamma, options.power)


def step_credit(graph: TrajectoryGraph, options: GraphHCAOptions) -> np.ndarray:
    """l [rows], before normalization."""
    psi = np.log(np.maximum(potential(graph, options), options.floor))
    return psi[graph.target] - psi[graph.source]


ESTIMATOR = Estimator("graphhca", GraphHCAOptions, graphhca)
