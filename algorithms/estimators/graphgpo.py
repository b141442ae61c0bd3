"""GraphGPO: steps are paid by how near the next state is to success (Cheng et al. 2026, arXiv 2605.26684)."""

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
from algorithms.graph import TrajectoryGraph
from algorithms.states import EncodedBatch


@dataclass(frozen=True)
class GraphGPOOptions(CommonOptions):
    """omega: decay of the step reward by distance, in (0, 1]; the paper uses 0.1 on ALFWorld, 0.2 on WebShop, 0.8 on
    Sokoban. progress: pay the change of distance. step_weight, episode_weight: of the two terms."""

    omega: float = 0.1
    progress: bool = False
    step_weight: float = 1.0
    episode_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "omega", low=0.0, high=1.0, above=True)
        check_flag(self, "progress")
        check_number(self, "step_weight", low=0.0)
        check_number(self, "episode_weight", low=0.0)


def graphgpo(batch: EncodedBatch, options: GraphGPOOptions) -> Credit:
    """`A = episode_weight A^E + step_weight normalize(R | state group)`.

    `R = success_reward * omega^{d(s')} - p*[not valid]`, d(s) the shortest distance to SUCCESS in the group's graph,
    unit edges; a node that can't get there has the largest finite distance of its group plus 1. With `progress`, R
    pays `omega^{d(s') - d(s) + 1}`. (The paper writes `omega^{d(s') + c}`, the same after mean_std.) Without a solved
    trajectory every distance is 1 and the step term is 0, penalties aside.
    """
    graph = TrajectoryGraph.to_success(batch)
    distance = _finite_distance(batch, graph)
    exponent = distance[graph.target]
    if options.progress:
        exponent = exponent - distance[graph.source] + 1.0
    reward = batch.success_reward * options.omega**exponent - options.invalid_action_penalty * ~batch.valid
    step_term = state_normalize(batch, reward, options)
    advantages = options.episode_weight * episode_term(batch, options) + options.step_weight * step_term
    unreachable = float(np.mean(np.isinf(graph.distance[graph.source])))
    return state_credit(batch, advantages, unreachable_fraction=unreachable)


def _finite_distance(batch: EncodedBatch, graph: TrajectoryGraph) -> np.ndarray:
    """[graph nodes] distances; without a way to SUCCESS, the largest finite distance of the group plus 1."""
    distance = graph.distance.copy()
    reached = np.isfinite(distance[:-1])
    largest = np.zeros(batch.layout.groups)
    np.maximum.at(largest, batch.node_group[reached], distance[:-1][reached])
    distance[:-1][~reached] = largest[batch.node_group[~reached]] + 1.0
    return distance


ESTIMATOR = Estimator("graphgpo", GraphGPOOptions, graphgpo)
