"""RLOO: a trajectory against the mean of the others (Kool et al. 2019; for LLMs Ahmadian et al. 2024,
arXiv 2402.14740)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms.estimators.base import CommonOptions, Credit, Estimator
from algorithms.states import EncodedBatch


@dataclass(frozen=True)
class RLOOOptions(CommonOptions):
    """Only the common options; `normalization` is ignored: the method divides by nothing."""


def rloo(batch: EncodedBatch, options: RLOOOptions) -> Credit:
    """`A_i = R_i - mean of R_j over the other trajectories of the group`, `R_i = success_reward*success_i - penalties`.

    Every row of a trajectory gets the same value, in units of reward. It equals n/(n-1) times GRPO's with
    `normalization="mean"`. With `baseline_over="steps"` R is each row's own score and the others are the other rows of
    the group. A pool of one gives 0.
    """
    layout = batch.layout
    score = batch.success_reward * batch.success - options.invalid_action_penalty * ~batch.valid
    if options.baseline_over == "steps":
        advantages, alone = _leave_one_out(score, layout.group, layout.groups)
        return Credit(advantages, alone, int(alone.sum()))
    group = layout.group[layout.start]
    penalties = np.bincount(layout.trajectory, weights=~batch.valid, minlength=layout.trajectories)
    returns = (batch.success_reward * batch.success)[layout.start] - options.invalid_action_penalty * penalties
    advantages, alone = _leave_one_out(returns, group, layout.groups)
    return Credit(advantages[layout.trajectory], alone[layout.trajectory], int(alone.sum()))


def _leave_one_out(values: np.ndarray, pool: np.ndarray, pools: int) -> tuple[np.ndarray, np.ndarray]:
    """Each value less the mean of its pool without it (0 in a pool of one), and which values are alone."""
    count = np.bincount(pool, minlength=pools)[pool]
    center = (np.bincount(pool, weights=values, minlength=pools) / np.maximum(np.bincount(pool, minlength=pools), 1))[
        pool
    ]
    advantages = np.where(count > 1, (values - center) * count / np.maximum(count - 1, 1), 0.0)
    return advantages, count == 1


ESTIMATOR = Estimator("rloo", RLOOOptions, rloo)
