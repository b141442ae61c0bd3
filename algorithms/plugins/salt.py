"""SALT: trajectories that share a transition share its credit (Li et al. 2025, arXiv 2510.20022)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms.estimators.base import CommonOptions, Credit, Estimator, episode_term
from algorithms.layout import joint
from algorithms.states import EncodedBatch
from algorithms.statistics import pool_mean


@dataclass(frozen=True)
class SALTOptions(CommonOptions):
    """Only the common options."""


def salt(batch: EncodedBatch, options: SALTOptions) -> Credit:
    """`A(s, a, s')` = mean of the trajectory advantage A^E over all executions of the transition in the task group.

    A transition that every trajectory makes gets about 0, one that only some make keeps the sign of their outcomes;
    one executed once keeps its trajectory's A^E. Where no two trajectories share a transition SALT is GRPO.
    """
    layout = batch.layout
    move, moves = transitions(batch)
    advantages = pool_mean(episode_term(batch, options), move, moves)[move]
    size = np.bincount(layout.group[layout.start], minlength=layout.groups)
    # A trajectory that makes a move twice shares it with nobody.
    visit, visits = joint(move, layout.trajectory)
    sharers = np.bincount(_first(visit, move, visits), minlength=moves)
    shared = float(np.mean(sharers[move] > 1))
    return Credit(advantages, size[layout.group] == 1, int(np.sum(size == 1)), {"shared_fraction": shared})


def transitions(batch: EncodedBatch) -> tuple[np.ndarray, int]:
    """Number [rows] of each row's (state, action, next state), and how many there are; a state is of one group."""
    return joint(joint(batch.state, batch.action)[0], batch.next_state)


def _first(key: np.ndarray, value: np.ndarray, keys: int) -> np.ndarray:
    """[keys] a value of each key, all of whose values are equal."""
    result = np.empty(keys, dtype=np.int64)
    result[key] = value
    return result


ESTIMATOR = Estimator("salt", SALTOptions, salt)
