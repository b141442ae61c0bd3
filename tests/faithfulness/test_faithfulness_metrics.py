"""Measures against exact advantages: worked examples, plain loops, and what a known error gives."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from algorithms import OptionError
from analysis import faithfulness as runs
from analysis import faithfulness_metrics as metrics
from analysis.faithfulness import Case, Variant, draw
from analysis.faithfulness_metrics import Truth


@pytest.fixture(scope="module")
def sample():
    return draw(Case("random_graph", 8, 10))


@pytest.fixture(scope="module")
def noisy(sample):
    """Twice the exact advantage, a bias that depends on the action, and noise of variance 0.04."""
    rng = np.random.default_rng(0)
    return 2 * sample.truth.advantage + rng.normal(scale=0.2, size=sample.steps.rows)


class TestPerfectEstimates:
    def test_the_exact_advantage_has_no_error(self, sample):
        measured = runs.measure(sample, sample.truth.advantage)
        assert np.allclose(measured.by_group["mse"], 0)
        assert np.allclose(measured.by_group["mse_scaled"], 0)
        assert np.nanmin(measured.by_group["sign"]) == 1
        assert measured.whole["bias2"] == pytest.approx(0, abs=1e-12)
        assert measured.whole["variance"] == pytest.approx(0, abs=1e-12)
        assert measured.whole["mean_cosine"] > 0.99

    def test_a_factor_matters_to_the_raw_error_alone(self, sample):
        once, tenfold = (runs.measure(sample, c * sample.truth.advantage) for c in (1.0, 10.0))
        assert tenfold.by_group["mse"].mean() == pytest.approx(81 * sample.power, rel=0.2)
        for name in ("mse_scaled", "sign", "rank", "cosine"):
            assert np.allclose(once.by_group[name], tenfold.by_group[name], equal_nan=True)

    def test_the_opposite_is_wrong_in_every_sign_and_order(self, sample):
        measured = runs.measure(sample, -sample.truth.advantage)
        assert np.nanmax(measured.by_group["sign"]) == 0
        assert np.nanmean(measured.by_group["rank"]) < -0.9
        assert measured.whole["mean_cosine"] < -0.99
        assert np.mean(measured.by_group["mse_scaled"]) == pytest.approx(1, abs=0.1)  # the best scale is 0

    def test_nothing_said_is_nothing_learned(self, sample):
        measured = runs.measure(sample, np.zeros(sample.steps.rows))
        assert np.nanmax(measured.by_group["sign"]) == 0
        assert np.nanmax(np.abs(measured.by_group["rank"])) == 0
        assert (measured.by_group["cosine"] == 0).all()
        assert (measured.by_group["zero"] == 1).all()


class TestMeasures:
    def test_rank_correlation_is_that_of_a_plain_loop(self, sample, noisy):
        truth = sample.truth
        found = metrics.rank_correlation(truth, noisy)
        for group in range(20):
            agree, pairs = 0, 0
            for state in range(sample.world.states):
                means = {}
                for action in range(len(sample.world.actions)):
                    rows = (truth.group == group) & (truth.state == state) & (truth.action == action)
                    if rows.any():
                        means[action] = (truth.advantage[rows].mean(), noisy[rows].mean())
                for first, second in combinations(means.values(), 2):
                    if abs(first[0] - second[0]) > 1e-9:
                        pairs += 1
                        agree += 1 if (first[0] - second[0]) * (first[1] - second[1]) > 0 else -1
            assert found[group] == pytest.approx(agree / pairs)

    def test_gradients_are_those_of_a_plain_loop(self, sample, noisy):
        truth, policy = sample.truth, sample.policy
        expected = np.zeros_like(policy)
        for row in np.flatnonzero(truth.group == 3):
            one = -policy[truth.state[row]].copy()
            one[truth.action[row]] += 1
            expected[truth.state[row]] += noisy[row] * one
        assert np.allclose(metrics.gradients(truth, noisy)[3], expected)

    def test_the_mean_gradient_of_exact_credit_is_the_exact_gradient(self, sample):
        mean = metrics.gradients(sample.truth, sample.truth.advantage).mean(0) / sample.case.size
        assert np.abs(mean - sample.truth.gradient).max() < 0.02

    def test_the_best_scale_is_the_best(self, sample, noisy):
        truth = sample.truth
        best = metrics.best_scale(truth, noisy)
        error = [np.mean((c * noisy - truth.advantage) ** 2) for c in (best, best * 1.01, best * 0.99)]
        assert error[0] == min(error)

    def test_noise_is_variance_and_no_bias(self, sample, noisy):
        bias2, variance = metrics.bias_and_variance(sample.truth, noisy)
        assert bias2 == pytest.approx(0, abs=0.03 * sample.power)
        assert variance == pytest.approx(0.04 / 4, rel=0.05)

    def test_a_shift_is_bias_and_no_variance(self, sample):
        bias2, variance = metrics.bias_and_variance(sample.truth, sample.truth.advantage + 0.3, fit_scale=False)
        assert bias2 == pytest.approx(0.09, rel=1e-6)
        assert variance == pytest.approx(0, abs=1e-12)

    def test_cells_met_once_say_nothing(self):
        one = np.zeros(1, dtype=int)
        truth = Truth(one, one, one, one, np.ones(1), np.ones((1, 1)), np.ones((1, 1)), 1)
        assert metrics.bias_and_variance(truth, np.ones(1)) == (0.0, 0.0)
        assert np.isnan(metrics.rank_correlation(truth, np.ones(1))).all()


class TestIntervals:
    def test_students_t(self):
        mean, half = metrics.interval(np.array([1.0, 2.0, 3.0, np.nan]))
        assert mean == 2.0
        assert half == pytest.approx(4.302653 / np.sqrt(3), rel=1e-5)

    def test_too_few_values_have_no_interval(self):
        assert metrics.interval(np.array([np.nan])) == (None, None)
        assert metrics.interval(np.array([4.0])) == (4.0, None)
        assert metrics.stratified_interval([np.array([np.nan])]) == (None, None)

    def test_strata_weigh_the_same_and_their_means_are_no_spread(self):
        mean, half = metrics.stratified_interval([np.array([0.0, 2.0]), np.array([10.0, 10.0, 10.0, 10.0])])
        assert mean == 5.5
        assert half == pytest.approx(1.959964 * np.sqrt(2 / 2) / 2)

    def test_they_cover_as_often_as_they_say(self):
        rng = np.random.default_rng(1)
        inside = 0
        for _ in range(600):
            mean, half = metrics.stratified_interval([rng.normal(m, 1, size=40) for m in (0, 5)])
            inside += abs(mean - 2.5) <= half
        assert 0.92 < inside / 600 < 0.98


class TestRuns:
    def test_equal_cases_give_equal_rows_and_seeds_differ(self):
        chosen = [Variant.parse("gigpo")]
        first, again = (runs.measure_case(Case("recovery"), chosen, repeats=2) for _ in range(2))
        assert first == again
        assert runs.measure_case(Case("recovery", seed=50), chosen, repeats=2) != first

    def test_grpo_has_no_preference_among_the_actions_of_one_trajectory(self):
        sample = draw(Case("detour", 8, 15, invalid=0.0))
        credit = Variant.parse("grpo").advantages(sample.batch)
        by_episode = [np.ptp(credit[sample.steps.episode == e]) for e in range(50)]
        assert max(by_episode) == 0

    def test_more_rollouts_bring_the_gradient_nearer(self):
        few, many = (runs.measure_case(Case(size=n), [Variant.parse("g2po")], repeats=2)[0] for n in (2, 32))
        assert many["cosine"] - many["cosine_ci"] > few["cosine"] + few["cosine_ci"]

    def test_what_estimators_see_can_be_aliased_while_the_truth_stays(self):
        plain, aliased = (draw(Case(aliasing=share)) for share in (0.0, 1.0))
        assert np.allclose(plain.solution.value, aliased.solution.value)
        assert len(set(aliased.batch.column("state"))) < len(set(plain.batch.column("state")))

    def test_a_summary_is_plain_numbers_one_row_a_world(self):
        rows = runs.summary("graft:sinks=dedicated", worlds=("slip", "detour"), repeats=2)
        assert [row["world"] for row in rows] == ["slip", "detour"]
        assert all(isinstance(row[m], float) for row in rows for m in runs.MEASURES)

    def test_variants_are_read_and_refused(self):
        variant = Variant.parse("graft:sinks=dedicated:gae_lambda=0")
        assert (variant.name, variant.options["sinks"]) == ("graft", "dedicated")
        with pytest.raises(OptionError, match="no option 'x'"):
            Variant.parse("graft:x=1")
        with pytest.raises(OptionError, match="name:option=value"):
            Variant.parse("graft:sinks")
        with pytest.raises(OptionError, match="there is no estimator 'grafd'"):
            Variant.parse("grafd")
