"""Statistics of a few seeds, against values worked out by hand and by scipy."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from analysis.stats import mean_std, wilson


def test_mean_and_sample_std():
    mean, std = mean_std([1.0, 2.0, 3.0, 6.0])
    assert mean == 3.0
    assert std == pytest.approx((14 / 3) ** 0.5)  # squared deviations 4, 1, 0, 9 over n - 1 = 3


def test_too_few_seeds_have_no_std():
    assert mean_std([]) == (None, None)
    assert mean_std([0.4]) == (0.4, None)


def test_equal_values_have_no_spread_at_all():
    assert mean_std([0.1] * 7)[1] == 0.0


def test_a_missing_number_is_an_error():
    with pytest.raises(ValueError, match="value 1 is not finite"):
        mean_std([1.0, float("nan")])


@pytest.mark.parametrize(("successes", "count"), [(0, 10), (3, 10), (10, 10), (24, 48), (1, 1)])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_wilson_is_the_score_interval(successes, count, confidence):
    reference = binomtest(successes, count).proportion_ci(confidence, method="wilson")
    assert wilson(successes, count, confidence) == pytest.approx((reference.low, reference.high))


def test_wilson_of_nothing_is_everything():
    assert wilson(0, 0) == (0.0, 1.0)


def test_wilson_refuses_impossible_counts():
    with pytest.raises(ValueError, match="11 successes of 10"):
        wilson(11, 10)
    with pytest.raises(ValueError, match="confidence"):
        wilson(1, 10, 95)
