"""RTMC: Monte-Carlo values of states and actions on the tree of a group's rollouts (Wang et al. 2026,
arXiv 2604.11037)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms.estimators.base import CommonOptions, Credit, Estimator, check_flag, check_number, state_credit
from algorithms.layout import joint
from algorithms.states import EncodedBatch
from algorithms.statistics import discounted_sum, pool_mean


@dataclass(frozen=True)
class RTMCOptions(CommonOptions):
    """gamma: discount of the return, in (0, 1]. first_visit: a trajectory counts once for a state and for an action
    in it, with what followed the first time. prior: imagined visits of a state with the group's mean return.
    `normalization` is ignored: the values are in units of reward."""

    gamma: float = 0.95
    first_visit: bool = True
    prior: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "gamma", low=0.0, high=1.0, above=True)
        check_flag(self, "first_visit")
        check_number(self, "prior", low=0.0)


def rtmc(batch: EncodedBatch, options: RTMCOptions) -> Credit:
    """`A(s, a) = Q(s, a) - V(s)`: mean return after a in s, less mean return from s, over the task group.

    The return is `G_t = sum_k gamma^k r_{t+k} - p*[not valid_t]`. With `prior` n_0 > 0 the baseline is
    `(n(s) V(s) + n_0 V_0) / (n(s) + n_0)`, V_0 the mean return of the group's first steps. A state left by one action
    alone gives 0 (without a prior); all executions of one action in one state get the same credit.
    """
    layout = batch.layout
    returns = discounted_sum(batch.reward, layout.length - 1 - layout.step, options.gamma)
    returns -= options.invalid_action_penalty * ~batch.valid
    choice, choices = joint(batch.state, batch.action)
    of_choice, _ = _mean_and_count(batch, returns, choice, choices, options.first_visit)
    of_state, visits = _mean_and_count(batch, returns, batch.state, batch.nodes, options.first_visit)
    first = layout.start
    root = pool_mean(returns[first], layout.group[first], layout.groups)[batch.node_group]
    baseline = (visits * of_state + options.prior * root) / np.maximum(visits + options.prior, 1.0)
    advantages = of_choice[choice] - baseline[batch.state]
    return state_credit(batch, np.where(np.abs(advantages) < _rounding(returns), 0.0, advantages))


def _mean_and_count(
    batch: EncodedBatch, returns: np.ndarray, key: np.ndarray, keys: int, first_visit: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Mean return [keys] and number of returns behind it."""
    rows = np.arange(len(key))
    if first_visit:
        rows = np.unique(joint(batch.layout.trajectory, key)[0], return_index=True)[1]  # rows are in time order
    return pool_mean(returns[rows], key[rows], keys), np.bincount(key[rows], minlength=keys)


def _rounding(returns: np.ndarray) -> float:
    """A difference of means below this is rounding."""
    return 1e-12 * float(np.max(np.abs(returns), initial=0.0))


ESTIMATOR = Estimator("rtmc", RTMCOptions, rtmc)
