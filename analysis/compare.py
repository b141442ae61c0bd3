"""All estimators on the same stored rollouts: what credit each gives, and where they disagree."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from algorithms import COMMON_OPTIONS, OptionError, RolloutBatch, estimate
from algorithms.estimators.diagnostics import ZERO
from algorithms.layout import joint
from algorithms.states import EncodedBatch, encode
from analysis.faithfulness import Variant, variants
from analysis.graph_model import rows_of_group
from analysis.group_statistics import GroupStatistics, group_statistics


@dataclass(frozen=True)
class Credit:
    """One estimator's credit on a batch, over all rows; None where there is nothing to measure.

    mean, std            of the advantages (population standard deviation)
    zero                 share of rows that get none
    decisive             share of all |advantage| that lies on decisive steps, see `decisive_rows`
    positive_in_failed   share of the rows of failed trajectories with positive credit
    negative_in_solved   share of the rows of solved trajectories with negative credit
    seconds              of the estimate
    """

    label: str
    mean: float
    std: float
    zero: float
    decisive: float | None
    positive_in_failed: float | None
    negative_in_solved: float | None
    seconds: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Estimators side by side.

    credits     one entry an estimator
    advantages  [estimators, rows], rows as in the batch
    agreement   [estimators, estimators] share of equal signs, of the rows that both give credit; NaN without any
    rank        [estimators, estimators] Spearman's rank correlation over all rows; NaN where one side is constant
    decisive    [rows] bool, see `decisive_rows`
    statistics  of the trajectory graphs
    """

    batch: RolloutBatch
    credits: tuple[Credit, ...]
    advantages: np.ndarray
    agreement: np.ndarray
    rank: np.ndarray
    decisive: np.ndarray
    statistics: GroupStatistics

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the estimators, with their options."""
        return tuple(credit.label for credit in self.credits)


def compare(
    batch: RolloutBatch, chosen: Sequence[str] | None = None, common: Mapping[str, Any] | None = None
) -> Comparison:
    """Run estimators on one batch and set them side by side; a few seconds for 10^5 rows and ten estimators.

    chosen  names, with options as in `graft:gae_lambda=0:sinks=dedicated`; None takes every registered one
    common  the shared options (`normalization`, `baseline_over`, `invalid_action_penalty`, `state_matching`) of all

    Raises `OptionError` for an unknown estimator or option, and for one named twice.
    """
    shared = dict(common or {})
    for key in shared:
        if key not in COMMON_OPTIONS:
            raise OptionError(f"{key!r} is not shared by all estimators (shared: {', '.join(COMMON_OPTIONS)})")
    asked = variants(chosen)
    _check_distinct(asked)
    encoded = encode(batch, shared.get("state_matching", "exact"))
    decisive = batch.layout.unsort(decisive_rows(encoded))
    results = [_credit(batch, variant, shared, decisive) for variant in asked]
    advantages = np.array([values for _, values in results])
    return Comparison(
        batch=batch,
        credits=tuple(credit for credit, _ in results),
        advantages=advantages,
        agreement=sign_agreement(advantages),
        rank=rank_correlation(advantages),
        decisive=decisive,
        statistics=group_statistics(batch, shared.get("state_matching", "exact")),
    )


def _check_distinct(asked: Sequence[Variant]) -> None:
    labels = [variant.label for variant in asked]
    if not labels:
        raise OptionError("no estimator is named")
    for label in labels:
        if labels.count(label) > 1:
            raise OptionError(f"{label!r} is named twice")


def _credit(
    batch: RolloutBatch, variant: Variant, shared: Mapping[str, Any], decisive: np.ndarray
) -> tuple[Credit, np.ndarray]:
    began = time.perf_counter()
    advantages = estimate(variant.name, batch, **{**shared, **variant.options}).advantages
    seconds = time.perf_counter() - began
    solved = batch.column("success")
    size = np.abs(advantages)
    given = size >= ZERO
    credit = Credit(
        label=variant.label,
        mean=float(advantages.mean()),
        std=float(advantages.std()),
        zero=float(1.0 - given.mean()),
        decisive=float(size[decisive].sum() / size.sum()) if given.any() else None,
        positive_in_failed=_share((advantages > 0) & given, ~solved),
        negative_in_solved=_share((advantages < 0) & given, solved),
        seconds=seconds,
    )
    return credit, advantages


def _share(flags: np.ndarray, among: np.ndarray) -> float | None:
    return float(flags[among].mean()) if among.any() else None


def decisive_rows(encoded: EncodedBatch) -> np.ndarray:
    """[rows, sorted] bool: steps from a state in which the group tried several actions with unlike success.

    Success of an action in a state is the share of its executions whose trajectory solved the task. What any exact
    credit would look at: everywhere else the rollouts show no difference between actions.
    """
    choice, choices = joint(encoded.state, encoded.action)
    success = np.bincount(choice, weights=encoded.success, minlength=choices) / np.bincount(choice, minlength=choices)
    low, high = np.full(encoded.nodes, np.inf), np.full(encoded.nodes, -np.inf)
    np.minimum.at(low, encoded.state, success[choice])
    np.maximum.at(high, encoded.state, success[choice])
    differs = high - low > ZERO
    return differs[encoded.state]


def sign_agreement(advantages: np.ndarray) -> np.ndarray:
    """[n, n] for advantages [n, rows]: of the rows that two estimators both give credit, the share of equal signs."""
    sign = np.where(np.abs(advantages) < ZERO, 0.0, np.sign(advantages))
    both = np.abs(sign) @ np.abs(sign).T
    with np.errstate(invalid="ignore"):
        return (sign @ sign.T / both + 1.0) / 2.0  # 0/0: never both


def rank_correlation(advantages: np.ndarray) -> np.ndarray:
    """[n, n] Spearman's correlation of advantages [n, rows], ties at their mean rank; NaN where a side is constant."""
    rounded = np.where(np.abs(advantages) < ZERO, 0.0, advantages)
    ranks = np.array([rankdata(values) for values in rounded])
    centered = ranks - ranks.mean(axis=1, keepdims=True)
    norm = np.sqrt((centered**2).sum(axis=1))
    with np.errstate(invalid="ignore"):
        return np.clip(centered @ centered.T / np.outer(norm, norm), -1.0, 1.0)


def step_view(comparison: Comparison, group: Any) -> pd.DataFrame:
    """Every step of one task group, trajectory by trajectory: what happened and what each estimator makes of it.

    Columns: trajectory, success, step, state, action, valid, decisive, then one of each estimator. `RolloutError` when
    there is no such group.
    """
    batch = comparison.batch
    rows = rows_of_group(batch, group)
    layout = batch.layout
    place = layout.unsort(np.arange(layout.rows))
    rows = rows[np.argsort(place[rows])]
    names = ("trajectory", "success", "step", "state", "action", "valid")
    frame = pd.DataFrame({name: batch.column(name)[rows] for name in names})
    frame["decisive"] = comparison.decisive[rows]
    for label, values in zip(comparison.labels, comparison.advantages, strict=True):
        frame[label] = values[rows]
    return frame
