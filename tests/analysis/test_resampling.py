"""Statistics over seeds and tasks: worked examples, scipy where it has the same, slow loops, properties."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis import resampling as rs

SCORES = st.lists(st.integers(0, 100), min_size=1, max_size=12)


def rng(seed=0):
    return np.random.default_rng(seed)


# --- IQM


@given(SCORES)
def test_iqm_is_scipys_trimmed_mean(values):
    assert rs.iqm(np.array(values, float)[:, None]) == pytest.approx(stats.trim_mean(values, 0.25))


def test_iqm_of_an_example():
    scores = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 100.0]])  # 8 scores: 2 cut off at each end
    assert rs.iqm(scores) == (2 + 3 + 4 + 5) / 4


def test_iqm_of_many_draws_at_once_is_the_iqm_of_each():
    draws = rng().normal(size=(7, 5, 3))
    np.testing.assert_allclose(rs.iqm(draws), [rs.iqm(one) for one in draws])


# --- bootstrap


def test_the_bootstrap_of_one_task_is_scipys():
    values = rng(1).normal(50, 10, size=12)
    ours = rs.bootstrap(values, rs.mean, rng(2), draws=20000)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=20000, method="percentile", rng=rng(3)).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.25)


def test_the_bootstrap_is_stratified_by_task():
    """Two tasks far apart: draws that mixed them would spread the mean by far more than the seeds do."""
    scores = np.array([[0.0, 100.0], [1.0, 99.0], [0.0, 100.0], [1.0, 99.0]])
    low, high = rs.bootstrap(scores, rs.mean, rng())
    assert 49 <= low <= high <= 51


def test_a_small_bootstrap_is_the_exact_distribution():
    """Of all 27 draws of three seeds, the quantiles at 10 and 90 %."""
    every = sorted(np.mean(draw) for draw in itertools.product([1.0, 2.0, 6.0], repeat=3))
    interval = rs.bootstrap(np.array([[1.0], [2.0], [6.0]]), rs.mean, rng(), draws=20000, confidence=0.8)
    assert interval == pytest.approx((every[2], every[-3]))


def test_equal_generators_give_equal_intervals_and_draws_are_cut_into_parts(monkeypatch):
    scores = rng(4).normal(size=(5, 3))
    whole = rs.bootstrap(scores, rs.iqm, rng(5), draws=100)
    assert whole == rs.bootstrap(scores, rs.iqm, rng(5), draws=100)
    monkeypatch.setattr(rs, "CHUNK", 60)
    assert rs.bootstrap(scores, rs.iqm, rng(5), draws=100) == pytest.approx(whole, abs=0.5)


def test_one_seed_has_an_interval_of_no_width():
    assert rs.bootstrap(np.array([[3.0, 5.0]]), rs.mean, rng()) == (4.0, 4.0)


@pytest.mark.parametrize("bad", [np.zeros((0, 2)), np.zeros((2, 0)), np.zeros((2, 2, 2)), [[np.nan]]])
def test_scores_of_no_use_are_refused(bad):
    with pytest.raises(ValueError, match="scores"):
        rs.bootstrap(np.asarray(bad), rs.mean, rng())


def test_the_coverage_of_the_interval_is_about_what_it_says():
    inside = 0
    for trial in range(200):
        low, high = rs.bootstrap(rng(trial).normal(size=(20, 1)), rs.mean, rng(trial + 1000), draws=300)
        inside += low <= 0 <= high
    assert 0.86 <= inside / 200 <= 0.99


# --- probability of improvement


@given(SCORES, SCORES)
def test_improvement_on_one_task_is_mann_whitneys_u(a, b):
    u = stats.mannwhitneyu(a, b).statistic
    assert rs.improvement(np.array(a, float), np.array(b, float)) == pytest.approx(u / (len(a) * len(b)))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_improvement_is_the_slow_loop_and_its_reverse_completes_it(n, m, tasks, seed):
    a, b = rng(seed).integers(0, 4, (n, tasks)).astype(float), rng(seed + 1).integers(0, 4, (m, tasks)).astype(float)
    wins = [
        1.0 if a[i, t] > b[j, t] else 0.5 if a[i, t] == b[j, t] else 0.0
        for t in range(tasks)
        for i in range(n)
        for j in range(m)
    ]
    assert rs.improvement(a, b) == pytest.approx(np.mean(wins))
    assert rs.improvement(a, b) + rs.improvement(b, a) == pytest.approx(1.0)


def test_a_clear_improvement_has_a_clear_interval():
    better, worse = np.array([80.0, 81, 82, 83]), np.array([10.0, 11, 12])
    assert rs.improvement(better, worse) == 1.0
    assert rs.improvement_interval(better, worse, rng()) == (1.0, 1.0)
    low, high = rs.improvement_interval(better, better, rng())
    assert low < 0.5 < high


def test_methods_on_other_tasks_are_refused():
    with pytest.raises(ValueError, match="same tasks, got 2 and 3"):
        rs.improvement(np.zeros((1, 2)), np.zeros((1, 3)))


# --- profiles


def test_a_profile_counts_scores_above_each_level():
    np.testing.assert_allclose(
        rs.profile(np.array([[10.0, 20], [30, 40]]), np.array([0, 10, 25, 40])), [1, 0.75, 0.5, 0]
    )


# --- paired


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=0, max_size=30))
def test_mcnemar_is_the_binomial_test_of_the_discordant_pairs(pairs):
    a, b = np.array([p[0] for p in pairs], bool), np.array([p[1] for p in pairs], bool)
    test = rs.mcnemar(a, b)
    only = (sum(x and not y for x, y in pairs), sum(y and not x for x, y in pairs))
    assert (test.only_first, test.only_second) == only
    n = sum(only)
    tail = sum(math.comb(n, k) for k in range(min(only) + 1)) / 2**n
    assert test.p == pytest.approx(min(1.0, 2 * tail))
    assert rs.mcnemar(b, a).p == pytest.approx(test.p)


def test_mcnemar_of_an_example():
    first = np.array([True] * 8 + [False] * 2 + [True] * 5)
    second = np.array([False] * 8 + [True] * 2 + [True] * 5)
    assert rs.mcnemar(first, second) == rs.McNemar(8, 2, pytest.approx(0.109375))  # 2 * (1 + 10 + 45) / 1024


def test_mcnemar_refuses_lists_of_other_lengths():
    with pytest.raises(ValueError, match="equal length"):
        rs.mcnemar(np.zeros(2, bool), np.zeros(3, bool))


def test_the_paired_bootstrap_knows_that_a_hard_task_is_hard_for_both():
    """The tasks differ widely and the methods by one point on each: only pairing can tell."""
    tasks = rng().uniform(0, 100, 40)
    difference = rs.paired_bootstrap(tasks[None] + 1.0, tasks[None], rng(1))
    assert (difference.mean, difference.low, difference.high) == pytest.approx((1.0, 1.0, 1.0))
    assert difference.p == pytest.approx(2 / (rs.DRAWS + 1))


def test_the_paired_bootstrap_resamples_seeds_as_the_slow_loop_does():
    a, b = rng(2).uniform(size=(3, 6)), rng(3).uniform(size=(4, 6))
    slow, generator = [], rng(4)
    for _ in range(4000):
        tasks = generator.integers(6, size=6)
        seeds_a, seeds_b = generator.integers(3, size=3), generator.integers(4, size=4)
        slow.append(a[seeds_a][:, tasks].mean() - b[seeds_b][:, tasks].mean())
    fast = rs.paired_bootstrap(a, b, rng(5), draws=4000)
    assert (fast.low, fast.high) == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])), abs=0.03)
    assert fast.mean == pytest.approx(a.mean() - b.mean())


def test_equal_methods_have_p_one():
    scores = rng(6).uniform(size=(1, 9))
    assert rs.paired_bootstrap(scores, scores, rng()).p == 1.0


# --- Holm


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_the_definition(p):
    order = sorted(range(len(p)), key=lambda i: p[i])
    expected, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, (len(p) - rank) * p[i])
        expected[i] = min(1.0, largest)
    assert rs.holm(p) == pytest.approx(expected)


def test_holm_of_an_example():
    assert rs.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert rs.holm([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        rs.holm([1.5])
