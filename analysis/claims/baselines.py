"""What statistics are taken over: turns of equal number, steps instead of trajectories."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from algorithms import OptionError
from analysis import faithfulness_metrics as metrics
from analysis.claims.finding import Finding, at_most_zero, equal_to, exactly
from analysis.faithfulness import Case, Sample, Variant, draw, variants
from benchmarks.worlds.sampling import Steps

SIZE = 8
WORLDS = 10  # policies that stop at different times


def findings(seed: int = 0, chosen: Sequence[Variant] | None = None) -> list[Finding]:
    """Credit for when to stop, by turn-wise baselines and by every estimator; episode length in the statistics."""
    chosen = variants() if chosen is None else chosen
    return [worked_example(), *stopping(seed, chosen), *length_weighting(seed, chosen)]


# --- baselines by turn number -----------------------------------------------------------------------------------------


def per_turn_credit(reward: np.ndarray, steps: Steps, group: np.ndarray) -> np.ndarray:
    """[rows] process supervision by turn number: `sum_{j >= t} (r_j - mean of r at turn j)`, the mean over the
    trajectories of the group that have a turn j (GRPO with process rewards, centered)."""
    width = int(steps.step.max()) + 1
    pool = group[steps.episode] * width + steps.step
    centered = reward - (np.bincount(pool, weights=reward) / np.maximum(np.bincount(pool), 1))[pool]
    after = np.cumsum(centered[::-1])[::-1]
    end = np.cumsum(steps.lengths)[steps.episode]  # first row of the next episode
    return after - np.append(after, 0.0)[end]


def worked_example() -> Finding:
    """Two trajectories with rewards [1] and [0, 1]: whether one stops at once or later, the return is 1."""
    steps = Steps(
        episode=np.array([0, 1, 1]),
        step=np.array([0, 0, 1]),
        state=np.zeros(3, dtype=int),
        action=np.zeros(3, dtype=int),
        next_state=np.zeros(3, dtype=int),
        won=np.ones(2, dtype=bool),
    )
    credit = per_turn_credit(np.array([1.0, 0.0, 1.0]), steps, np.zeros(2, dtype=int))
    return Finding(
        claim="Per-turn-index baseline",
        statement="it gives no credit for when an episode stops",
        condition="",
        setting="worked example, rewards [1] and [0, 1]; exact advantages are 0",
        met=None,
        numbers={"credit of stopping at once": float(credit[0]), "of going on": float(credit[1])},
        verdict=exactly(bool(np.allclose(credit[:2], 0.0))),
    )


def stopping(seed: int, chosen: Sequence[Variant]) -> list[Finding]:
    """Mean credit of `hand in` where handing in is as good in every round (undiscounted, no penalty)."""
    cases = [Case("optional_stop", SIZE, 10, invalid=0.0, seed=seed + number) for number in range(WORLDS)]
    samples = [draw(case, discount=1.0, penalty=0.0) for case in cases]
    by_turn = [per_turn_credit(_reward(sample), sample.steps, _group(sample)) for sample in samples]
    found = [_stop_finding("Per-turn-index baseline", samples, by_turn)]
    for variant in chosen:
        credits = [variant.advantages(sample.batch, discount=1.0) for sample in samples]
        found.append(_stop_finding(f"Credit for stopping: {variant.label}", samples, credits))
    return found


def _reward(sample: Sample) -> np.ndarray:
    return sample.world.goal[sample.steps.next_state].astype(float)


def _group(sample: Sample) -> np.ndarray:
    """[episodes] group of each."""
    return np.arange(len(sample.steps.won)) // sample.case.size


def _stop_finding(claim: str, samples: Sequence[Sample], credits: Sequence[np.ndarray]) -> Finding:
    """The credit of stopping less that of waiting in the same round, averaged over groups."""
    gaps = [
        _within_rounds(sample, credit, sample.steps.action == sample.world.actions.index("hand in"))
        for sample, credit in zip(samples, credits, strict=True)
    ]
    verdict, mean, half = equal_to(0.0, gaps)
    return Finding(
        claim=claim,
        statement="it gives no credit for when an episode stops",
        condition="",
        setting=f"optional_stop, N={SIZE}, {WORLDS} policies, undiscounted; exact advantages are 0",
        met=None,
        numbers={"credit of stopping over waiting": mean, "± 95 %": half},
        verdict=verdict,
    )


def _within_rounds(sample: Sample, credit: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """[groups] mean over rounds in which a group has both of (mean credit of stopping - of waiting); NaN without."""
    truth = sample.truth
    rounds = truth.policy.shape[0]
    cell = truth.group * rounds + truth.state
    size = truth.groups * rounds
    means = []
    for rows in (stop, ~stop):
        count = np.bincount(cell[rows], minlength=size)
        total = np.bincount(cell[rows], weights=credit[rows], minlength=size)
        means.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
    gap = (means[0] - means[1]).reshape(truth.groups, rounds)
    known = np.isfinite(gap)
    return np.where(known.any(1), np.where(known, gap, 0.0).sum(1) / np.maximum(known.sum(1), 1), np.nan)


# --- statistics weighted by episode length ----------------------------------------------------------------------------


def length_weighting(seed: int, chosen: Sequence[Variant]) -> list[Finding]:
    """Every estimator with statistics over steps against statistics over trajectories."""
    return [
        finding
        for kind in ("detour", "recovery", "random_graph", "sokoban")
        for finding in _weighting(kind, seed, chosen)
    ]


def _weighting(kind: str, seed: int, chosen: Sequence[Variant]) -> list[Finding]:
    sample = draw(Case(kind, SIZE, 15, seed=seed))
    lengths = sample.steps.lengths
    won = sample.steps.won
    ratio = float(lengths[~won].mean() / lengths[won].mean()) if 0 < won.sum() < len(won) else 1.0
    found = []
    for variant in chosen:
        both = _both_ways(variant, sample)
        if both is not None:
            found.append(_weighting_finding(variant, sample, both, ratio))
    return found


def _both_ways(variant: Variant, sample: Sample) -> tuple[np.ndarray, np.ndarray] | None:
    """Advantages over trajectories and over steps; None for an estimator that makes no difference between them."""
    try:
        both = [
            Variant(variant.label, variant.name, {**variant.options, "baseline_over": over}).advantages(sample.batch)
            for over in ("trajectories", "steps")
        ]
    except OptionError:
        return None
    return None if np.allclose(both[0], both[1]) else (both[0], both[1])


def _weighting_finding(variant: Variant, sample: Sample, both: tuple[np.ndarray, np.ndarray], ratio: float) -> Finding:
    truth = sample.truth
    cosines = [metrics.gradient_cosine(truth, credit) for credit in both]
    gap, half = metrics.interval(cosines[1] - cosines[0])
    errors = [float(metrics.squared_error(truth, metrics.best_scale(truth, c) * c).mean()) / sample.power for c in both]
    numbers = {
        "failed over solved length": ratio,
        "mean credit (trajectories)": float(both[0].mean()),
        "mean credit (steps)": float(both[1].mean()),
        "error (trajectories)": errors[0],
        "error (steps)": errors[1],
        "cosine (trajectories)": float(cosines[0].mean()),
        "cosine (steps)": float(cosines[1].mean()),
        "cosine gain": float(gap or 0.0),
        "± 95 %": float(half or 0.0),
    }
    return Finding(
        claim=f"Length weighting: {variant.label}",
        statement="statistics over steps, which weigh long episodes more, bring a group's gradient nearer to the exact "
        "one than statistics over trajectories",
        condition="",
        setting=f"{sample.case.world}, N={SIZE}",
        met=None,
        numbers=numbers,
        verdict=at_most_zero([cosines[0] - cosines[1]])[0],
    )
