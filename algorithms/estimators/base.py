"""What every estimator module shares: its options, its record, the episode term."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from algorithms.states import EncodedBatch, StateMatching
from algorithms.statistics import Normalization, normalize

BaselineOver = Literal["trajectories", "steps"]
COMMON_OPTIONS = ("normalization", "baseline_over", "invalid_action_penalty", "state_matching")


class OptionError(ValueError):
    """An option of an estimator that is unknown or out of range; the message names it and what is valid."""


@dataclass(frozen=True)
class CommonOptions:
    """Options of every estimator.

    normalization           "mean_std": (x - mean)/(std + 1e-6); "mean": x - mean
    baseline_over           "trajectories" (the papers' equation) or "steps" (the code behind the published numbers):
                            what the episode term is averaged over; GRAFT has no episode term and ignores it
    invalid_action_penalty  p >= 0, taken off each row whose action was not valid, in units of reward
    state_matching          "exact", "ratcliff" or "embedding": which state keys are one node
    """

    normalization: Normalization = "mean_std"
    baseline_over: BaselineOver = "trajectories"
    invalid_action_penalty: float = 0.1
    state_matching: StateMatching = "exact"

    def __post_init__(self) -> None:
        check_choice(self, "normalization", get_args(Normalization))
        check_choice(self, "baseline_over", get_args(BaselineOver))
        check_choice(self, "state_matching", get_args(StateMatching))
        check_number(self, "invalid_action_penalty", low=0.0)


@dataclass(frozen=True, eq=False)
class Credit:
    """What an estimator returns.

    advantages   [rows] float64, in the sorted order of the batch's layout
    lone         [rows] bool: the row's pool held nothing to compare with
    singletons   number of such pools
    diagnostics  plain numbers of the estimator's own
    """

    advantages: np.ndarray
    lone: np.ndarray
    singletons: int
    diagnostics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimator:
    """A registered estimator. `compute` is pure; it sees rows sorted by (group, trajectory, step)."""

    name: str
    options: type[CommonOptions]
    compute: Callable[[EncodedBatch, Any], Credit]


def episode_term(batch: EncodedBatch, options: CommonOptions) -> np.ndarray:
    """`A^E` [rows]: outcome less penalties, normalized over the task group.

    Over trajectories: `R_i = success_reward*success_i - p*(invalid rows of i)`, one value for all rows of i.
    Over steps: each row's own `success_reward*success - p*[not valid]`, over all rows of the group.
    A pool of one gives 0.
    """
    layout = batch.layout
    score = batch.success_reward * batch.success
    penalty = options.invalid_action_penalty * ~batch.valid
    if options.baseline_over == "steps":
        return normalize(score - penalty, layout.group, layout.groups, options.normalization)
    total = np.bincount(layout.trajectory, weights=penalty, minlength=layout.trajectories)
    returns = score[layout.start] - total
    advantages = normalize(returns, layout.group[layout.start], layout.groups, options.normalization)
    return advantages[layout.trajectory]


def state_credit(batch: EncodedBatch, advantages: np.ndarray, **diagnostics: float) -> Credit:
    """Credit of an estimator that compares rows within state groups."""
    lone = np.bincount(batch.state, minlength=batch.nodes)[batch.state] == 1
    return Credit(advantages, lone, int(lone.sum()), diagnostics)


def state_normalize(batch: EncodedBatch, values: np.ndarray, options: CommonOptions) -> np.ndarray:
    """Normalize values [rows] within state groups: rows of one task group that acted in one node."""
    return normalize(values, batch.state, batch.nodes, options.normalization)


def check_choice(options: object, name: str, choices: tuple[str, ...]) -> None:
    """Raise `OptionError` unless the option is one of the choices."""
    value = getattr(options, name)
    if value not in choices:
        raise OptionError(f"option {name!r} is {value!r}; it must be one of {', '.join(map(repr, choices))}")


def check_flag(options: object, name: str) -> None:
    """Raise `OptionError` unless the option is a bool."""
    value = getattr(options, name)
    if not isinstance(value, bool):
        raise OptionError(f"option {name!r} is {value!r}; it must be true or false")


def check_number(options: object, name: str, low: float, high: float = sys.float_info.max, above: bool = False) -> None:
    """Store the option as float; raise `OptionError` unless low <= value <= high (low < value where `above`)."""
    value = getattr(options, name)
    number = _as_float(value)
    if number is None or not low <= number <= high or (above and number == low):
        bounds = f"{'>' if above else '>='} {low:g}" + (f" and <= {high:g}" if high < sys.float_info.max else "")
        raise OptionError(f"option {name!r} is {value!r}; it must be a number {bounds}")
    object.__setattr__(options, name, number)


def _as_float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, np.integer, np.floating)):
        return None
    try:
        return float(value)
    except ValueError:
        return None
