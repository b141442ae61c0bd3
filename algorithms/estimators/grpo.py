"""GRPO: one advantage for a whole trajectory, from its outcome (Shao et al. 2024, arXiv 2402.03300)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from algorithms.estimators.base import CommonOptions, Credit, Estimator, episode_term
from algorithms.states import EncodedBatch


@dataclass(frozen=True)
class GRPOOptions(CommonOptions):
    """Only the common options."""


def grpo(batch: EncodedBatch, options: GRPOOptions) -> Credit:
    """`A = A^E`: the outcome of the trajectory less its penalties, normalized over the trajectories of the group.

    Every row of a trajectory gets the same value (with `baseline_over="steps"` the penalty stays on its own row). A
    group of one trajectory, or one in which all outcomes agree, gives zeros: GRPO learns nothing from it.
    """
    layout = batch.layout
    size = np.bincount(layout.group[layout.start], minlength=layout.groups)
    return Credit(episode_term(batch, options), size[layout.group] == 1, int(np.sum(size == 1)))


ESTIMATOR = Estimator("grpo", GRPOOptions, grpo)
