"""Entropy, KL and clip fraction of an update, as means over all its tokens.

TRL writes one mean per micro-batch and averages these, as if all held equally many tokens, and its step-level clip
fraction counts filler rows. Here each is weighted by what it is a mean over, so that the numbers do not depend on
micro-batches, filler rows or the number of processes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import MutableMapping

# TRL's name -> ours
_TOKEN_MEANS = {"entropy": "entropy", "kl": "kl"}
_CLIPPED = {"clip_ratio/low_mean": "clip_fraction/low", "clip_ratio/high_mean": "clip_fraction/high"}
_DROPPED = ("clip_ratio/region_mean", "clip_ratio/low_min", "clip_ratio/high_max")

Metrics = MutableMapping[str, list[float]]


class LossMeans:
    """Collects what the loss measured on each micro-batch since the last `close`.

    by_rows  the importance ratio is one a row (step), so clipping is counted in rows; otherwise in tokens
    """

    def __init__(self, by_rows: bool):
        self._by_rows = by_rows
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, float] = defaultdict(float)

    def take(self, metrics: Metrics, *, tokens: float, rows: float, scored: int) -> None:
        """Take TRL's means of one micro-batch out of `metrics`. All counts are over all processes.

        tokens  that count in the loss;  rows  without filler rows;  scored  rows with them (fillers are never clipped)
        """
        for theirs, ours in _TOKEN_MEANS.items():
            self._add(metrics, theirs, ours, tokens, tokens)
        for theirs, ours in _CLIPPED.items():
            self._add(metrics, theirs, ours, *((scored, rows) if self._by_rows else (tokens, tokens)))
        for name in _DROPPED:
            metrics.pop(name, None)

    def _add(self, metrics: Metrics, theirs: str, ours: str, weight: float, count: float) -> None:
        values = metrics.pop(theirs, None)
        if values:
            self._sums[ours] += values[-1] * weight
            self._counts[ours] += count

    def close(self, metrics: Metrics) -> None:
        """Put the means into `metrics` under our names, and begin anew."""
        means = {name: self._sums[name] / count for name, count in self._counts.items() if count}
        if "clip_fraction/low" in means:
            means["clip_fraction"] = means["clip_fraction/low"] + means["clip_fraction/high"]
        for name, value in means.items():
            metrics[name] = [value]
        self._sums.clear()
        self._counts.clear()
