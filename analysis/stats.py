"""Statistics of a few seeds. A seed is the unit of replication: episodes of one run are never counted as runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

RANKING_SEEDS = 4  # fewer seeds do not tell methods apart; tables say so


def mean_std(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation (ddof=1) of one value a seed.

    Args:
        values: [seeds], finite.

    Returns:
        (mean, std). Without values both are None; with a single one std is None, not 0. Equal values give exactly 0.

    Raises:
        ValueError: a value is not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"mean_std: value {int(np.flatnonzero(~np.isfinite(array))[0])} is not finite")
    if array.size == 0:
        return None, None
    if array.size == 1:
        return float(array[0]), None
    spread = 0.0 if np.ptp(array) == 0.0 else float(array.std(ddof=1))
    return float(array.mean()), spread


def wilson(successes: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of a success rate (Wilson, 1927): with p = successes/count and z the normal quantile,

        (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)

    Unlike p ± z √(p(1-p)/n) it stays in [0, 1] and does not collapse at 0 and 1. It takes the episodes as
    independent: it tells the error of sampling episodes from one policy and says nothing of other seeds.

    Args:
        successes: 0..count.
        count: number of episodes n.
        confidence: coverage in (0, 1).

    Returns:
        (low, high) as fractions; (0, 1) when count is 0.

    Raises:
        ValueError: successes outside 0..count, or confidence outside (0, 1).
    """
    if not 0 <= successes <= count:
        raise ValueError(f"wilson: {successes} successes of {count} episodes")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"wilson: confidence must lie between 0 and 1, got {confidence}")
    if count == 0:
        return 0.0, 1.0
    z = float(ndtri(0.5 + confidence / 2))
    rate = successes / count
    center = rate + z * z / (2 * count)
    half = z * float(np.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count)))
    scale = 1 + z * z / count
    low = 0.0 if successes == 0 else (center - half) / scale
    high = 1.0 if successes == count else (center + half) / scale
    return low, high
