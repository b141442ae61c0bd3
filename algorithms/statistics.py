"""Pooled statistics: means and normalization within pools (task groups, state groups), discounted sums in time."""

from __future__ import annotations

from typing import Literal

import numpy as np

EPSILON = 1e-6  # added to standard deviations, as in the code behind the published numbers
FLAT = 1e-12  # a pool whose spread is below this share of its magnitude counts as constant

Normalization = Literal["mean_std", "mean"]


def pool_mean(values: np.ndarray, pool: np.ndarray, pools: int) -> np.ndarray:
    """Mean [pools] of values [rows] by pool number [rows]; an empty pool gives 0."""
    count = np.bincount(pool, minlength=pools)
    return np.bincount(pool, weights=values, minlength=pools) / np.maximum(count, 1)


def normalize(
    values: np.ndarray, pool: np.ndarray, pools: int, how: Normalization, *, keep_lone_sign: bool = False
) -> np.ndarray:
    """Center values [rows] within their pools and, for `mean_std`, divide by (std + 1e-6), std unbiased (ddof=1).

    pool            [rows] integers in 0..pools-1
    keep_lone_sign  a pool of one gives x/(|x| + 1e-6), as GRAFT asks, instead of 0

    A pool of one gives 0. A pool whose standard deviation is below 1e-12 of its mean magnitude gives exact zeros, so
    eight rewards of 0.35 stay 0 and rounding noise is never blown up. Finite input gives finite output.
    """
    count = np.bincount(pool, minlength=pools)
    divisor = np.maximum(count, 1)
    centered = values - (np.bincount(pool, weights=values, minlength=pools) / divisor)[pool]
    variance = np.bincount(pool, weights=centered * centered, minlength=pools) / np.maximum(count - 1, 1)
    deviation = np.sqrt(variance)
    magnitude = np.bincount(pool, weights=np.abs(values), minlength=pools) / divisor
    constant = (count < 2) | (deviation <= FLAT * magnitude)
    scale = np.where(constant, 0.0, 1.0 / (deviation + EPSILON) if how == "mean_std" else 1.0)
    result = centered * scale[pool]
    if keep_lone_sign:
        lone = (count == 1)[pool]
        result[lone] = values[lone] / (np.abs(values[lone]) + EPSILON)
    return result


def discounted_sum(values: np.ndarray, remaining: np.ndarray, gamma: float) -> np.ndarray:
    """`G_t = sum_k gamma^k x_{t+k}` to the end of each trajectory.

    values     [rows] x, rows of a trajectory adjacent and in time order
    remaining  [rows] rows that follow in the same trajectory (T - 1 - t)

    Doubles the window each pass, so a batch costs log2(longest trajectory) array operations.
    """
    total = np.array(values, dtype=np.float64)
    span, factor = 1, float(gamma)
    longest = int(remaining.max(initial=0))
    while span <= longest:
        later = np.flatnonzero(remaining >= span)
        total[later] += factor * total[later + span]
        span, factor = 2 * span, factor * factor
    return total
