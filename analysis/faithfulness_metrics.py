"""How near estimated advantages come to exact ones: one value a group, so that groups are the replications.

All functions take `Truth`, the rows of many groups with their exact advantages, and `estimate` [rows].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy.special import stdtrit

ZERO = 1e-9  # an exact advantage below this has no sign, and two that differ by less have no order
NORMAL = 1.959964  # 97.5 % quantile


@dataclass(frozen=True, eq=False)
class Truth:
    """Rows of a batch with what is known about them.

    group, state, action, step  [rows] integers; groups numbered 0..groups-1
    advantage                   [rows] exact A of the row's state, action and steps to go
    policy                      [states, actions] of the sampling policy
    gradient                    [states, actions] exact policy gradient
    """

    group: np.ndarray
    state: np.ndarray
    action: np.ndarray
    step: np.ndarray
    advantage: np.ndarray
    policy: np.ndarray
    gradient: np.ndarray
    groups: int

    @cached_property
    def rows_of(self) -> np.ndarray:
        """[groups] rows of each group."""
        return np.bincount(self.group, minlength=self.groups)

    def group_mean(self, values: np.ndarray) -> np.ndarray:
        """[groups] mean of values [rows] over each group's rows."""
        return np.bincount(self.group, weights=values, minlength=self.groups) / self.rows_of

    @cached_property
    def place(self) -> np.ndarray:
        """[rows] cell number of (state, action)."""
        return self.state * self.policy.shape[1] + self.action


def best_scale(truth: Truth, estimate: np.ndarray) -> float:
    """The factor c >= 0 that minimizes the mean of (c * estimate - A)^2 over all rows.

    An estimate that points the wrong way gets 0: no positive learning rate would make it useful.
    """
    power = float(estimate @ estimate)
    return max(float(estimate @ truth.advantage) / power, 0.0) if power > 0 else 0.0


def squared_error(truth: Truth, estimate: np.ndarray) -> np.ndarray:
    """[groups] mean of (estimate - A)^2."""
    return truth.group_mean((estimate - truth.advantage) ** 2)


def sign_accuracy(truth: Truth, estimate: np.ndarray) -> np.ndarray:
    """[groups] share of rows with a nonzero exact advantage whose estimate has its sign; an estimate of 0 is wrong.
    NaN for a group without such rows."""
    signed = np.abs(truth.advantage) > ZERO
    right = signed & (np.sign(estimate) == np.sign(truth.advantage)) & (np.abs(estimate) > ZERO)
    return _ratio(
        np.bincount(truth.group, weights=right, minlength=truth.groups),
        np.bincount(truth.group, weights=signed, minlength=truth.groups),
    )


def rank_correlation(truth: Truth, estimate: np.ndarray) -> np.ndarray:
    """[groups] Kendall's tau within states: over pairs of different actions that a group took in one state, concordant
    less discordant pairs over all pairs whose exact advantages differ. Rows of one action are averaged first; an
    estimate without a preference counts as neither. NaN for a group without such pairs."""
    exact, guess = _cell_means(truth, truth.advantage), _cell_means(truth, estimate)
    agree = np.zeros(truth.groups)
    pairs = np.zeros(truth.groups)
    for first, second in combinations(range(truth.policy.shape[1]), 2):
        gap = exact[:, :, first] - exact[:, :, second]
        ordered = np.abs(gap) > ZERO  # NaN where one of the two was not taken
        lean = guess[:, :, first] - guess[:, :, second]
        lean = np.where(np.abs(lean) > ZERO, np.sign(lean), 0.0)
        agree += np.where(ordered, np.sign(gap) * lean, 0.0).sum(1)
        pairs += ordered.sum(1)
    return _ratio(agree, pairs)


def _cell_means(truth: Truth, values: np.ndarray) -> np.ndarray:
    """[groups, states, actions] mean over a group's rows; NaN where there are none."""
    shape = (truth.groups, *truth.policy.shape)
    cell = truth.group * truth.policy.size + truth.place
    count = np.bincount(cell, minlength=int(np.prod(shape)))
    total = np.bincount(cell, weights=values, minlength=len(count))
    return _ratio(total, count).reshape(shape)


def gradients(truth: Truth, estimate: np.ndarray) -> np.ndarray:
    """[groups, states, actions] sum over a group's rows of `estimate * grad log pi(a|s)` with respect to the logits."""
    states, actions = truth.policy.shape
    cell = truth.group * truth.policy.size + truth.place
    taken = np.bincount(cell, weights=estimate, minlength=truth.groups * truth.policy.size)
    per_state = np.bincount(truth.group * states + truth.state, weights=estimate, minlength=truth.groups * states)
    return taken.reshape(-1, states, actions) - per_state.reshape(-1, states, 1) * truth.policy


def gradient_cosine(truth: Truth, estimate: np.ndarray) -> np.ndarray:
    """[groups] cosine of each group's policy gradient with the exact one; 0 where the group gives no gradient."""
    found = gradients(truth, estimate).reshape(truth.groups, -1)
    exact = truth.gradient.ravel()
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(exact)
    return np.where(norms > 1e-15, found @ exact / np.where(norms > 1e-15, norms, 1.0), 0.0)


def mean_gradient_cosine(truth: Truth, estimate: np.ndarray) -> float:
    """Cosine of the gradient averaged over all groups with the exact one: what is left is bias of direction."""
    mean = gradients(truth, estimate).mean(0).ravel()
    norm = float(np.linalg.norm(mean) * np.linalg.norm(truth.gradient))
    return float(mean @ truth.gradient.ravel()) / norm if norm > 1e-15 else 0.0


def bias_and_variance(truth: Truth, estimate: np.ndarray, fit_scale: bool = True) -> tuple[float, float]:
    """(squared bias, variance) of the estimate, weighted by visits.

    Rows of one (state, action, step) have one exact advantage A; over all groups their estimates have a mean m and a
    variance v. The squared bias is the mean of (c m - A)^2 and the variance the mean of c^2 v, where c >= 0 is the
    scale that fits the means best (1 with `fit_scale=False`): noise is no bias, and neither is a wrong unit. m^2 is
    taken less v/n, the error of m itself, so a squared bias near 0 may come out slightly negative (estimates of one
    group are taken as independent here). Cells met once tell nothing about v and are left out; (0, 0) when there are
    no others.
    """
    cell = np.unique(truth.step * truth.policy.size + truth.place, return_inverse=True)[1]
    count = np.bincount(cell)
    mean = np.bincount(cell, weights=estimate) / count
    exact = np.bincount(cell, weights=truth.advantage) / count
    spread = np.bincount(cell, weights=(estimate - mean[cell]) ** 2) / np.maximum(count - 1, 1)
    kept = count > 1
    if not kept.any():
        return 0.0, 0.0
    weight = np.where(kept, count, 0) / count[kept].sum()
    square = float(weight @ (mean**2 - spread / count))
    product = float(weight @ (mean * exact))
    scale = (max(product / square, 0.0) if square > 0 else 0.0) if fit_scale else 1.0
    bias = scale**2 * square - 2 * scale * product + float(weight @ exact**2)
    return bias, scale**2 * float(weight @ spread)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def interval(values: np.ndarray) -> tuple[float | None, float | None]:
    """(mean, half width of the 95 % interval by Student's t) of values [n]; NaN is left out, None: too few."""
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return None, None
    if len(known) == 1:
        return float(known[0]), None
    error = float(known.std(ddof=1)) / np.sqrt(len(known))
    return float(known.mean()), float(stdtrit(len(known) - 1, 0.975)) * float(error)


def stratified_interval(strata: Sequence[np.ndarray]) -> tuple[float | None, float | None]:
    """(mean, half width of the 95 % interval) of the average over strata, each one's mean weighing the same.

    strata  arrays [n_i] of independent values; NaN is left out, and a stratum without values.
    """
    known = [values[np.isfinite(values)] for values in strata]
    known = [values for values in known if len(values)]
    if not known:
        return None, None
    mean = float(np.mean([values.mean() for values in known]))
    if min(map(len, known)) < 2:
        return mean, None
    error = np.sqrt(sum(values.var(ddof=1) / len(values) for values in known)) / len(known)
    return mean, NORMAL * float(error)
