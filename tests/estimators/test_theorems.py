"""Relations between the estimators, and small inputs that public code gets wrong."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from batches import batch_of, episode
from slow_oracle import DEFAULTS, _sorted_group, random_rows, slow_lookahead, slow_td

from algorithms import built_in, estimate
from algorithms.estimators.graft import td_residual
from algorithms.estimators.graphhca import GraphHCAOptions, potential, step_credit
from algorithms.graph import TrajectoryGraph
from algorithms.states import encode
from algorithms.statistics import normalize

SEEDS = range(8)


def random_batch(seed, **kwargs):
    return batch_of(random_rows(np.random.default_rng(seed), **kwargs))


def sorted_success(encoded):
    return encoded.success[encoded.layout.last]


class TestReductions:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("name", ["gigpo", "graphgpo", "g2po", "graphhca"])
    @pytest.mark.parametrize("over", ["trajectories", "steps"])
    def test_without_its_step_term_it_is_grpo(self, name, over, seed):
        batch = random_batch(seed)
        expected = estimate("grpo", batch, baseline_over=over).advantages
        result = estimate(name, batch, step_weight=0.0, baseline_over=over).advantages
        np.testing.assert_array_equal(result, expected)

    @pytest.mark.parametrize("over", ["trajectories", "steps"])
    def test_grpo_of_one_step_episodes_is_classic_grpo(self, over):
        success = np.array([True, False, False, True, False])
        rows = [row for t, won in enumerate(success) for row in episode(t, ["q", f"a{t}"], bool(won))]
        rewards = 10.0 * success
        expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
        np.testing.assert_allclose(estimate("grpo", batch_of(rows), baseline_over=over).advantages, expected)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_the_two_baselines_agree_where_lengths_do_not_vary_and_only_the_mean_is_taken(self, seed):
        rng = np.random.default_rng(seed)
        rows = [
            row
            for t in range(4)
            for row in episode(t, [f"s{n}" for n in rng.integers(4, size=6)], bool(rng.random() < 0.5))
        ]
        batch = batch_of(rows)
        by_step = estimate("grpo", batch, normalization="mean", baseline_over="steps").advantages
        by_trajectory = estimate("grpo", batch, normalization="mean").advantages
        np.testing.assert_allclose(by_step, by_trajectory, atol=1e-12)


class TestGraphHCA:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_infinite_power_is_the_discounted_distance(self, seed):
        graph = TrajectoryGraph.dedicated(encode(random_batch(seed)))
        expected = np.where(np.isfinite(graph.distance), 0.9 ** np.minimum(graph.distance, 1e6), 0.0)
        phi = potential(graph, GraphHCAOptions(gamma=0.9, power=math.inf))
        np.testing.assert_allclose(phi, expected, atol=1e-12)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_infinite_power_ranks_the_steps_of_a_state_as_graphgpo_does(self, seed):
        batch = random_batch(seed, states=4, horizon=12)
        encoded = encode(batch)
        options = {"invalid_action_penalty": 0.0, "episode_weight": 0.0, "normalization": "mean"}
        # A floor that no potential reaches: below it GraphHCA does not tell steps apart.
        hca = estimate("graphhca", batch, power="inf", gamma=0.9, floor=1e-9, **options).advantages
        gpo = estimate("graphgpo", batch, omega=0.9, **options).advantages
        hca, gpo = hca[encoded.layout.order], gpo[encoded.layout.order]
        compared = 0
        graph = TrajectoryGraph.dedicated(encoded)
        reaches = np.isfinite(graph.distance[graph.target])
        for node in np.unique(encoded.state):
            rows = np.flatnonzero((encoded.state == node) & reaches)
            order = np.sign(np.round(np.subtract.outer(hca[rows], hca[rows]), 9))
            np.testing.assert_array_equal(order, np.sign(np.round(np.subtract.outer(gpo[rows], gpo[rows]), 9)))
            compared += np.count_nonzero(order)
        assert compared > 0

    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_larger_power_never_lowers_the_potential(self, seed):
        graph = TrajectoryGraph.dedicated(encode(random_batch(seed)))
        phis = [potential(graph, GraphHCAOptions(power=power)) for power in (1, 1.5, 4, 60, 3000, math.inf)]
        for lower, higher in pairwise(phis):
            assert np.all(lower <= higher + 1e-12)
        assert np.all((phis[0] >= 0) & (phis[-1] <= 1))

    def test_a_large_power_does_not_underflow(self):
        # Half of the steps at s0 fail: Phi(s0)^power = 0.5 * gamma^(power * 3) is far below the smallest float.
        rows = episode(0, ["s0", "s1", "s2"], True) + episode(1, ["s0", "x"], False)
        graph = TrajectoryGraph.dedicated(encode(batch_of(rows)))
        phi = potential(graph, GraphHCAOptions(gamma=0.5, power=2000.0))
        start = graph.source[0]
        assert phi[start] == pytest.approx(0.25 * 0.5 ** (1 / 2000), rel=1e-12)

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("power", [1.0, 3.0, math.inf])
    def test_credits_telescope_and_are_bounded(self, seed, power):
        encoded = encode(random_batch(seed))
        graph, options = TrajectoryGraph.dedicated(encoded), GraphHCAOptions(power=power, floor=0.05)
        credit, psi = step_credit(graph, options), np.log(np.maximum(potential(graph, options), 0.05))
        layout = encoded.layout
        total = np.bincount(layout.trajectory, weights=credit)
        end = np.where(sorted_success(encoded), 0.0, math.log(0.05))
        np.testing.assert_allclose(total, end - psi[encoded.state[layout.start]], atol=1e-12)
        assert np.all(np.abs(credit) <= math.log(1 / 0.05) + 1e-12)


class TestGRAFT:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("gae_lambda", [0.3, 0.95, 1.0])
    def test_with_dedicated_sinks_graph_gae_is_the_one_step_td(self, seed, gae_lambda):
        batch = random_batch(seed)
        result = estimate("graft", batch, sinks="dedicated", gae_lambda=gae_lambda)
        plain = estimate("graft", batch, sinks="dedicated", gae_lambda=0.0)
        np.testing.assert_array_equal(result.advantages, plain.advantages)
        assert result.diagnostics["gae_contribution"] == 0.0

    @pytest.mark.parametrize("seed", SEEDS)
    def test_walking_the_graph_with_dedicated_sinks_finds_nothing(self, seed):
        # The code does not walk here; this does, so that the fact itself is tested.
        rows = random_rows(np.random.default_rng(seed), groups=1)
        group, settings = _sorted_group(rows, range(len(rows))), DEFAULTS["graft"] | {"sinks": "dedicated"}
        edges, td = slow_td(group, settings)
        assert max(map(abs, td)) > 0 or not any(row["success"] for row in rows)
        assert max(map(abs, slow_lookahead(group, edges, td, settings))) < 1e-12

    def test_with_merged_sinks_lambda_matters(self):
        # The second trajectory passes through the state in which the first one failed, and goes on to win.
        rows = episode(0, ["a", "b"], False) + episode(1, ["a", "b", "c", "d"], True)
        batch = batch_of(rows)
        with_gae, without = (estimate("graft", batch, normalize=False, gae_lambda=x).advantages for x in (0.95, 0.0))
        assert estimate("graft", batch).diagnostics["gae_contribution"] > 0.1
        # b is a sink of value 0, c is worth 0.99: leaving b gains 0.99^2, discounted by 0.99*0.95.
        assert with_gae[1] - without[1] == pytest.approx(0.99 * 0.95 * 0.99**2)

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("sinks", ["merged", "dedicated"])
    def test_values_lie_between_the_sinks(self, seed, sinks):
        graph = getattr(TrajectoryGraph, sinks)(encode(random_batch(seed)))
        value = graph.solve(0.99)
        assert np.all((value >= 0) & (value <= 1))

    @pytest.mark.parametrize("sinks", ["merged", "dedicated"])
    def test_a_chain_that_succeeds_is_worth_its_distance(self, sinks):
        batch = batch_of(episode(0, [f"s{i}" for i in range(6)], True))
        graph = getattr(TrajectoryGraph, sinks)(encode(batch))
        np.testing.assert_allclose(graph.solve(0.9)[graph.source], [0.9**d for d in (5, 4, 3, 2, 1)], rtol=1e-12)
        np.testing.assert_array_equal(td_residual(graph, 0.9), np.zeros(5))

    def test_no_discount_is_the_chance_of_success(self):
        rows = episode(0, ["a", "a", "b", "won"], True) + episode(1, ["a", "b", "lost"], False)
        graph = TrajectoryGraph.merged(encode(batch_of(rows)))
        np.testing.assert_allclose(graph.solve(1.0)[graph.source], 0.5)

    def test_a_shared_end_is_worth_the_share_that_solved_there(self):
        rows = episode(0, ["a", "end"], True) + episode(1, ["b", "end"], False) + episode(2, ["b", "end"], False)
        result = estimate("graft", batch_of(rows), normalize=False, gamma=0.9)
        np.testing.assert_allclose(result.advantages, 0.0, atol=1e-12)  # V(a) = V(b) = 0.9/3, and so is what follows

    def test_a_lone_state_keeps_its_sign(self):
        rows = episode(0, ["a", "b", "won"], True) + episode(1, ["a", "lost"], False, invalid=(0,))
        rows += episode(2, ["x", "y"], False, invalid=(0,))
        result = estimate("graft", batch_of(rows)).advantages
        assert result[-1] == pytest.approx(-1.0, abs=1e-3)

    def test_the_penalty_is_in_units_of_success(self):
        rows = episode(0, ["a", "b"], False, invalid=(0,))
        for reward in (10.0, 1.0):
            batch = batch_of(rows, success_reward=reward)
            result = estimate("graft", batch, normalize=False, invalid_action_penalty=0.5)
            np.testing.assert_allclose(result.advantages, [-0.5 / reward])


class TestPublicFailures:
    @pytest.mark.parametrize("over", ["trajectories", "steps"])
    def test_a_group_of_one_gives_zero_and_is_counted(self, over):
        result = estimate("grpo", batch_of(episode(0, ["a", "b"], True)), baseline_over=over)
        assert result.advantages.tolist() == [0.0]
        assert result.diagnostics["singleton_groups"] == 1
        assert result.diagnostics["singleton_fraction"] == 1.0

    @pytest.mark.parametrize("how", ["mean_std", "mean"])
    @pytest.mark.parametrize("value", [0.35, 0.1, 1e-9, 1e9, -0.7])
    def test_equal_rewards_give_exact_zeros(self, how, value):
        pool = np.zeros(8, dtype=np.int64)
        assert normalize(np.full(8, value), pool, 1, how).tolist() == [0.0] * 8

    def test_noise_far_below_the_values_is_no_signal_but_a_small_spread_is(self):
        pool = np.zeros(4, dtype=np.int64)
        noise = 0.35 + np.array([0, 1, 2, 3]) * 5e-17
        assert normalize(noise, pool, 1, "mean_std").tolist() == [0.0] * 4
        assert np.all(normalize(0.35 + np.array([0, 1, 2, 3]) * 1e-9, pool, 1, "mean") != 0)

    def test_averaging_over_trajectories_or_steps_are_two_named_things(self):
        rows = episode(0, ["a", "b", "c"], True) + episode(1, [f"f{i}" for i in range(9)], False)
        batch = batch_of(rows)
        by_trajectory = estimate("grpo", batch).advantages
        by_step = estimate("grpo", batch, baseline_over="steps").advantages
        np.testing.assert_allclose(by_trajectory, [0.7071] * 2 + [-0.7071] * 8, atol=1e-4)
        np.testing.assert_allclose(by_step, [1.897] * 2 + [-0.474] * 8, atol=1e-3)

    @pytest.mark.parametrize("over", ["trajectories", "steps"])
    def test_stopping_earns_nothing_where_all_returns_are_equal(self, over):
        rows = episode(0, ["a", "won"], True) + episode(1, ["a", "b", "won"], True)
        assert estimate("grpo", batch_of(rows), baseline_over=over).advantages.tolist() == [0.0] * 3

    def test_gigpo_penalizes_after_discounting(self):
        # Step scores at "a": 0.5^1 * 10 = 5, and 0 - 2 for the invalid step. Were the penalty discounted as a reward,
        # the first step of the first trajectory would carry half of the penalty of its second one.
        rows = episode(0, ["a", "b", "won"], True, invalid=(1,)) + episode(1, ["a", "lost"], False, invalid=(0,))
        options = {"gamma": 0.5, "invalid_action_penalty": 2.0, "normalization": "mean"}
        step_term = (
            estimate("gigpo", batch_of(rows), **options).advantages
            - estimate("grpo", batch_of(rows), invalid_action_penalty=2.0, normalization="mean").advantages
        )
        np.testing.assert_allclose(step_term, [3.5, 0.0, -3.5], atol=1e-12)

    def test_a_copied_row_is_refused_so_batch_shaping_cannot_change_the_estimate(self):
        rows = episode(0, ["a", "b", "c"], True)
        with pytest.raises(ValueError, match="appears twice"):
            batch_of([*rows, rows[1]])


class TestWorkedExamples:
    def test_graphgpo_pays_the_step_that_comes_nearer(self):
        rows = episode(0, ["a", "b", "won"], True) + episode(1, ["a", "c", "d"], False)
        result = estimate("graphgpo", batch_of(rows), normalization="mean", episode_weight=0.0).advantages
        # a -> b: b is 1 from SUCCESS; a -> c: no way, so the largest finite distance 2, plus 1.
        half = (10 * 0.1 - 10 * 0.1**3) / 2
        np.testing.assert_allclose(result, [half, 0.0, -half, 0.0], atol=1e-12)

    def test_graphgpo_gives_credit_for_reaching_a_state_from_which_another_won(self):
        rows = episode(0, ["a", "b", "won"], True) + episode(1, ["a", "b", "lost"], False)
        rows += episode(2, ["a", "c"], False)
        result = estimate("graphgpo", batch_of(rows), episode_weight=0.0).advantages
        assert result[2] == result[0] > 0  # the same useful step, in a trajectory that failed
        assert result[4] < 0

    def test_graphgpo_without_success_has_no_step_term(self):
        rows = episode(0, ["a", "b", "c"], False) + episode(1, ["a", "c", "b"], False)
        result = estimate("graphgpo", batch_of(rows))
        assert result.advantages.tolist() == [0.0] * 4
        assert result.diagnostics["unreachable_fraction"] == 1.0

    def test_g2po_compares_the_states_that_follow(self):
        rows = episode(0, ["a", "b", "won"], True) + episode(1, ["a", "c", "lost"], False)
        options = {"gamma": 0.5, "normalization": "mean", "edge_centric": False}
        node = (
            estimate("g2po", batch_of(rows), **options).advantages
            - estimate("grpo", batch_of(rows), normalization="mean").advantages
        )
        np.testing.assert_allclose(node, [2.5, 0.0, -2.5, 0.0], atol=1e-12)  # V(b) = 5, V(c) = 0

    def test_graphhca_credits_the_log_ratio_of_potentials(self):
        rows = episode(0, ["a", "won"], True) + episode(1, ["a", "lost"], False)
        graph = TrajectoryGraph.dedicated(encode(batch_of(rows)))
        # Phi(a) = 0.95/2.
        credit = step_credit(graph, GraphHCAOptions())
        np.testing.assert_allclose(credit, [-math.log(0.475), math.log(0.01 / 0.475)])


class TestDiagnostics:
    def test_counts_and_shares(self):
        rows = episode(0, ["a", "b", "c"], True, group="mixed") + episode(1, ["a", "b", "d"], False, group="mixed")
        rows += episode(0, ["a", "b"], True, group="easy") + episode(0, ["a", "b"], True, group="easy too")
        rows += episode(0, ["a", "a"], False, group="hard")
        for name in built_in():
            record = estimate(name, batch_of(rows)).diagnostics
            counted = {key: record[key] for key in ("rows", "trajectories", "groups", "nodes")}
            assert counted == {"rows": 7, "trajectories": 5, "groups": 4, "nodes": 5}
            assert record["merge_rate"] == pytest.approx(2 / 7)
            assert record["too_easy_groups"] == 0.5
            assert record["too_hard_groups"] == 0.25
            assert record["singleton_groups"] == 3
            assert record["singleton_fraction"] == pytest.approx(3 / 7)

    def test_shares_of_advantages(self):
        rows = (
            episode(0, ["a", "won"], True) + episode(1, ["b", "lost"], False) + episode(0, ["a", "b"], True, group="h")
        )
        result = estimate("grpo", batch_of(rows))
        assert result.diagnostics["zero_fraction"] == pytest.approx(1 / 3)
        assert result.diagnostics["advantage_std"] == pytest.approx(np.std(result.advantages))
