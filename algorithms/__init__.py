"""What is compared: rollout batches and the advantage estimators that read them. Importing this needs no torch."""

from algorithms.estimators import (
    COMMON_OPTIONS,
    CommonOptions,
    Credit,
    Estimator,
    EstimatorResult,
    OptionError,
    built_in,
    estimate,
    estimators,
    options_type,
)
from algorithms.rollouts import RolloutBatch, RolloutError

__all__ = [
    "COMMON_OPTIONS",
    "CommonOptions",
    "Credit",
    "Estimator",
    "EstimatorResult",
    "OptionError",
    "RolloutBatch",
    "RolloutError",
    "built_in",
    "estimate",
    "estimators",
    "options_type",
]
