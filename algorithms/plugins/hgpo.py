"""HGPO: step advantages among rows that share a state and more and more of what came before (He et al. 2026,
arXiv 2602.22817)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from algorithms.estimators.base import (
    CommonOptions,
    Credit,
    Estimator,
    OptionError,
    check_flag,
    check_number,
    episode_term,
    state_credit,
)
from algorithms.layout import joint
from algorithms.states import EncodedBatch
from algorithms.statistics import discounted_sum, normalize


@dataclass(frozen=True)
class HGPOOptions(CommonOptions):
    """gamma: discount of the step return, in (0, 1]. history: earlier states K that may have to agree. alpha: weight
    of a level is (agreeing states + 1)^alpha. base_group: the whole task group is a level, of weight 1."""

    gamma: float = 0.95
    history: int = 2
    alpha: float = 1.0
    base_group: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "gamma", low=0.0, high=1.0, above=True)
        check_number(self, "alpha", low=0.0)
        check_flag(self, "base_group")
        check_number(self, "history", low=0.0)
        if self.history != int(self.history):
            raise OptionError(f"option 'history' is {self.history!r}; it must be a whole number")
        object.__setattr__(self, "history", int(self.history))


def hgpo(batch: EncodedBatch, options: HGPOOptions) -> Credit:
    """`A = sum_k w_k A_k / sum_k w_k`, `w_k = (k + 1)^alpha`, over levels k = 1..K+1.

    `A_k = normalize(G_t | rows of the task group whose last k states agree)`, `G_t` GiGPO's step return; a row enters
    level k when its trajectory has k states by then and another row agrees. A level that gives a row exactly 0 has no
    say for it. With `base_group` level 0 is the episode term. History 0 is GiGPO's step term; a state met once gives 0.
    """
    layout = batch.layout
    returns = discounted_sum(batch.reward, layout.length - 1 - layout.step, options.gamma)
    returns -= options.invalid_action_penalty * ~batch.valid
    total, weight = np.zeros(layout.rows), np.zeros(layout.rows)
    if options.base_group:
        total += episode_term(batch, options)
        weight += total != 0.0
    for agreeing, (rows, pool, pools) in enumerate(_levels(batch, options.history), start=1):
        level = normalize(returns[rows], pool, pools, options.normalization)
        total[rows] += (agreeing + 1) ** options.alpha * level
        weight[rows] += (agreeing + 1) ** options.alpha * (level != 0.0)
    return state_credit(batch, total / np.where(weight > 0.0, weight, 1.0))


def _levels(batch: EncodedBatch, history: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """For k = 1, 2, ...: rows with k states so far, and the pool of each: those whose last k states agree."""
    rows = np.arange(batch.layout.rows)
    pool, pools = joint(batch.state, np.zeros_like(batch.state))
    yield rows, pool, pools
    number = np.empty(batch.layout.rows, dtype=np.int64)
    for earlier in range(1, history + 1):
        number[rows] = pool
        rows = rows[batch.layout.step[rows] >= earlier]
        if len(rows) == 0:
            return
        pool, pools = joint(number[rows - 1], batch.state[rows])
        yield rows, pool, pools


ESTIMATOR = Estimator("hgpo", HGPOOptions, hgpo)
