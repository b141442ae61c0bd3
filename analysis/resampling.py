"""Statistics over seeds and tasks. Every random one takes a generator; nothing here knows of frames or files.

The one shape of scores is [seeds, tasks]: one row a seed (a run), one column a task or a kind of tasks. Seeds are the
unit of replication: intervals resample seeds, within each task apart where the tasks are strata.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Statistic = Callable[[np.ndarray], np.ndarray]  # [..., seeds, tasks] -> [...]

DRAWS = 2000
CHUNK = 1 << 22  # numbers that one pass of a bootstrap holds


def _scores(scores: np.ndarray, name: str = "scores") -> np.ndarray:
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must be [seeds, tasks] with at least one of each, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; leave missing runs out")
    return array


def mean(scores: np.ndarray) -> np.ndarray:
    """Mean over seeds and tasks; a `Statistic`."""
    return np.asarray(scores).mean(axis=(-2, -1))


def iqm(scores: np.ndarray) -> np.ndarray:
    """Interquartile mean over the scores of all seeds and tasks (Agarwal et al. 2021): the mean of those left when a
    quarter, rounded down, is cut off at each end. Equals `scipy.stats.trim_mean(scores, 0.25, axis=None)`; the mean
    with fewer than four scores. A `Statistic`."""
    flat = np.asarray(scores)
    flat = np.sort(flat.reshape(*flat.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return flat[..., cut : flat.shape[-1] - cut].mean(axis=-1)


def bootstrap(
    scores: np.ndarray,
    statistic: Statistic,
    rng: np.random.Generator,
    draws: int = DRAWS,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Percentile interval of a statistic by stratified bootstrap: seeds are drawn with replacement for each task
    apart, so that every draw holds each task equally often.

    Args:
        scores: [seeds, tasks] (or [seeds]).
        statistic: maps [draws, seeds, tasks] to [draws].

    Returns:
        (low, high). With one seed both are the statistic itself: nothing is known of the spread, say so in words.
    """
    array = _scores(scores)
    step = max(1, CHUNK // array.size)
    values = [statistic(_resample(array, rng, min(step, draws - start))) for start in range(0, draws, step)]
    return _interval(np.concatenate(values), confidence)


def _resample(array: np.ndarray, rng: np.random.Generator, draws: int) -> np.ndarray:
    """[draws, seeds, tasks] with the seeds of each task drawn with replacement."""
    seeds, tasks = array.shape
    return array[rng.integers(seeds, size=(draws, seeds, tasks)), np.arange(tasks)]


def _interval(values: np.ndarray, confidence: float) -> tuple[float, float]:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


# --- two methods ------------------------------------------------------------------------------------------------------


def improvement(first: np.ndarray, second: np.ndarray) -> float:
    """Probability that a run of `first` scores above a run of `second`, ties counted half, mean over tasks (Agarwal
    et al. 2021). For one task it is the Mann-Whitney U over the number of pairs.

    Args:
        first, second: [seeds, tasks]; the tasks are the same, the numbers of seeds may differ.
    """
    a, b = _pair(first, second)
    return float(np.mean([_wins(a[:, task], b[:, task]) for task in range(a.shape[1])]))


def improvement_interval(
    first: np.ndarray,
    second: np.ndarray,
    rng: np.random.Generator,
    draws: int = DRAWS,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Percentile interval of `improvement`; the seeds of both methods are drawn apart, for each task apart."""
    a, b = _pair(first, second)
    values = np.zeros(draws)
    for task in range(a.shape[1]):
        wins = _wins(a[:, task], b[:, task])
        values += np.einsum("di,di->d", _weights(len(a), draws, rng) @ wins, _weights(len(b), draws, rng))
    return _interval(values / a.shape[1], confidence)


def _wins(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[seeds of a, seeds of b] 1 where a is above b, half for a tie, else 0."""
    return (np.sign(a[:, None] - b[None, :]) + 1) / 2


def _weights(seeds: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """[draws, seeds] share of a draw with replacement that each seed makes up."""
    drawn = rng.integers(seeds, size=(draws, seeds)) + seeds * np.arange(draws)[:, None]
    return np.bincount(drawn.ravel(), minlength=draws * seeds).reshape(draws, seeds) / seeds


def _pair(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = _scores(first, "first"), _scores(second, "second")
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"both methods need the same tasks, got {a.shape[1]} and {b.shape[1]}")
    return a, b


def profile(scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Performance profile (Dolan & Moré 2002; Agarwal et al. 2021): share of (seed, task) scores above each level.

    Args:
        scores: [seeds, tasks].
        levels: [levels].
    """
    return np.mean(_scores(scores).reshape(-1)[:, None] > np.asarray(levels)[None, :], axis=0)


# --- paired by task ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class McNemar:
    """`only_first` and `only_second` episodes solved by one of two policies alone; `p` two-sided."""

    only_first: int
    only_second: int
    p: float


def mcnemar(first: np.ndarray, second: np.ndarray) -> McNemar:
    """Exact McNemar test of two policies on the same episodes: of those that only one policy solves, each is as
    likely the first's as the second's (binomial, p = 1/2). Without any such episode p is 1.

    It tells these two policies apart on more tasks of the kind; it says nothing of further seeds.

    Args:
        first, second: [episodes] solved or not, paired.
    """
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"mcnemar needs two lists of equal length, got shapes {a.shape} and {b.shape}")
    from scipy import stats  # half a second to import, and only this test needs it

    only_first, only_second = int(np.sum(a & ~b)), int(np.sum(b & ~a))
    discordant = only_first + only_second
    p = float(stats.binomtest(only_first, discordant).pvalue) if discordant else 1.0
    return McNemar(only_first, only_second, p)


@dataclass(frozen=True)
class Difference:
    """Mean difference first - second, its percentile interval, and the two-sided p of no difference."""

    mean: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    first: np.ndarray,
    second: np.ndarray,
    rng: np.random.Generator,
    draws: int = DRAWS,
    confidence: float = 0.95,
) -> Difference:
    """Difference of two methods on a shared list of tasks: seeds are drawn with replacement, for each method apart,
    and the tasks once for both, so that a hard task counts for both or for none.

    `p` is twice the smaller share of draws on either side of 0 (a draw of exactly 0 counts half), at least 2/(draws+1)
    and at most 1. With one seed a method only the tasks vary; say so in words.

    Args:
        first, second: [seeds, tasks] score of each seed on each task; the same tasks in the same order.
    """
    a, b = _pair(first, second)
    tasks = rng.integers(a.shape[1], size=(draws, a.shape[1]))
    values = _mean_of(a, tasks, rng) - _mean_of(b, tasks, rng)
    low, high = _interval(values, confidence)
    below = float(np.mean(values < 0) + np.mean(values == 0) / 2)
    p = min(1.0, max(2 * min(below, 1 - below), 2 / (draws + 1)))
    return Difference(float(a.mean() - b.mean()), low, high, p)


def _mean_of(scores: np.ndarray, tasks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[draws] mean score of drawn seeds on the drawn tasks."""
    by_seed = np.stack([row[tasks].mean(axis=1) for row in scores], axis=1)  # [draws, seeds]
    return np.einsum("ds,ds->d", _weights(len(scores), len(tasks), rng), by_seed)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values of a family of tests (Holm 1979): sorted, the k-th smallest of m is multiplied by m - k + 1,
    made monotone, and cut at 1. Order as given; empty for none."""
    p = np.asarray(p_values, dtype=np.float64)
    if p.size and not ((p >= 0) & (p <= 1)).all():
        raise ValueError("holm: p values must lie between 0 and 1")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    return adjusted.tolist()
