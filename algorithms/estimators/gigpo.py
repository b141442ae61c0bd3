"""GiGPO: step advantages among rows that share a state (Feng et al. 2025, arXiv 2505.10978)."""

from __future__ import annotations

from dataclasses import dataclass

from algorithms.estimators.base import (
    CommonOptions,
    Credit,
    Estimator,
    check_number,
    episode_term,
    state_credit,
    state_normalize,
)
from algorithms.states import EncodedBatch
from algorithms.statistics import discounted_sum


@dataclass(frozen=True)
class GiGPOOptions(CommonOptions):
    """gamma: discount of the step return, in (0, 1]. step_weight: w of the step term."""

    gamma: float = 0.95
    step_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "gamma", low=0.0, high=1.0, above=True)
        check_number(self, "step_weight", low=0.0)


def gigpo(batch: EncodedBatch, options: GiGPOOptions) -> Credit:
    """`A = A^E + w A^S`, `A^S = normalize(G_t | state group)`, `G_t = sum_k gamma^k r_{t+k} - p*[not valid_t]`.

    Rows of a task group that acted in the same state are compared by what followed. The penalty lands on its own row,
    after discounting (penalize, then discount gives other numbers). A state met once gives A^S = 0; w = 0 is GRPO.
    """
    layout = batch.layout
    returns = discounted_sum(batch.reward, layout.length - 1 - layout.step, options.gamma)
    returns -= options.invalid_action_penalty * ~batch.valid
    step_term = state_normalize(batch, returns, options)
    return state_credit(batch, episode_term(batch, options) + options.step_weight * step_term)


ESTIMATOR = Estimator("gigpo", GiGPOOptions, gigpo)
