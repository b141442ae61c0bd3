"""What a test of a claim says: the claim, its condition, the numbers, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.faithfulness_metrics import interval, stratified_interval

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
EXACT = 1e-9  # an identity holds when it is off by less


@dataclass(frozen=True)
class Finding:
    """One claim put to one test.

    claim      source and place, such as "GRAFT Proposition 1"
    statement  what is claimed, in our words
    condition  what the claim asks for ("" when nothing)
    setting    what was tested
    met        whether the setting meets the condition; None where there is none
    numbers    what was measured
    verdict    holds, fails or undecided (the 95 % interval allows both)
    """

    claim: str
    statement: str
    condition: str
    setting: str
    met: bool | None
    numbers: Mapping[str, float]
    verdict: str


def exactly(good: bool) -> str:
    """Verdict of a test without sampling error."""
    return HOLDS if good else FAILS


def at_most_zero(strata: Sequence[np.ndarray]) -> tuple[str, float, float]:
    """(verdict, mean, half width) of the claim that a mean is at most 0, from values by stratum."""
    mean, half = _mean(strata)
    if mean is None or half is None:
        return UNDECIDED, float(mean or 0.0), float("nan")
    return (HOLDS if mean + half <= 0 else FAILS if mean - half > 0 else UNDECIDED), mean, half


def equal_to(expected: float, strata: Sequence[np.ndarray]) -> tuple[str, float, float]:
    """(verdict, mean, half width) of the claim that a mean has a value: it fails where the interval leaves it out."""
    mean, half = _mean(strata)
    if mean is None or half is None:
        return UNDECIDED, float(mean or 0.0), float("nan")
    return (HOLDS if abs(mean - expected) <= half else FAILS), mean, half


def _mean(strata: Sequence[np.ndarray]) -> tuple[float | None, float | None]:
    """Mean and half width of the 95 % interval; Student's t for a single stratum, which may be small."""
    return interval(strata[0]) if len(strata) == 1 else stratified_interval(strata)
