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
    """gamma: discount of the return, in (0, 1]; the paper uses 0.99. first_visit: a trajectory counts once for an
    action in a state, with what followed the first time. prior: imagined visits of each state with the group's mean
    outcome (the paper's equation 11; 2 there). normalize: divide by the standard deviation of the group's advantages,
    without centering. `normalization` is ignored."""

    gamma: float = 0.99
    first_visit: bool = True
    prior: float = 0.0
    normalize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "gamma", low=0.0, high=1.0, above=True)
        check_flag(self, "first_visit")
        check_number(self, "prior", low=0.0)
        check_flag(self, "normalize")


def rtmc(batch: EncodedBatch, options: RTMCOptions) -> Credit:
    """`A(s, a) = Q(s, a) - V(s)`: mean return after a in s, less the mean return from s, over the task group.

    The return is `G_t = sum_k gamma^k r_{t+k} - p*[not valid_t]`; both means are over the first visits of (s, a), so
    V is the mean of Q weighted by them. With `prior` n_0 the baseline is `(n(s) V(s) + n_0 V_0) / (n(s) + n_0)`, V_0
    the group's mean outcome. Without a prior a state left by one action alone gives 0, and the credit of a state's
    visits sums to 0. All executions of one action in one state get the same credit, in units of reward.
    """
    layout = batch.layout
    returns = discounted_sum(batch.reward, layout.length - 1 - layout.step, options.gamma)
    returns -= options.invalid_action_penalty * ~batch.valid
    choice, choices = joint(batch.state, batch.action)
    counted = _first_visits(layout.trajectory, choice) if options.first_visit else np.arange(layout.rows)
    action_value = pool_mean(returns[counted], choice[counted], choices)
    baseline = _baseline(batch, returns, counted, options.prior)
    advantages = action_value[choice] - baseline[batch.state]
    advantages[np.abs(advantages) < 1e-12 * np.max(np.abs(returns))] = 0.0  # rounding
    if options.normalize:
        advantages = _scaled(advantages, layout.group, layout.groups)
    return state_credit(batch, advantages)


def _first_visits(trajectory: np.ndarray, choice: np.ndarray) -> np.ndarray:
    """Rows [n] in which a trajectory takes an action in a state for the first time; rows are in time order."""
    return np.unique(joint(trajectory, choice)[0], return_index=True)[1]


def _baseline(batch: EncodedBatch, returns: np.ndarray, counted: np.ndarray, prior: float) -> np.ndarray:
    """[nodes] V, drawn to the group's mean outcome by `prior` imagined visits."""
    layout = batch.layout
    state = batch.state[counted]
    visits = np.bincount(state, minlength=batch.nodes)
    total = np.bincount(state, weights=returns[counted], minlength=batch.nodes)
    outcome = batch.success_reward * batch.success[layout.start]
    mean_outcome = pool_mean(outcome, layout.group[layout.start], layout.groups)[batch.node_group]
    return (total + prior * mean_outcome) / np.maximum(visits + prior, 1e-300)


def _scaled(advantages: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """Divided by the population standard deviation of their group; constant groups stay as they are."""
    centered = advantages - pool_mean(advantages, group, groups)[group]
    deviation = np.sqrt(pool_mean(centered**2, group, groups))
    return advantages / np.where(deviation > 1e-8, deviation, 1.0)[group]


ESTIMATOR = Estimator("rtmc", RTMCOptions, rtmc)
