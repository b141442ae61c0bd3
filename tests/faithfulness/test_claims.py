"""The papers' claims: those with their conditions met hold, and the known failures are found."""

from __future__ import annotations

import json

import numpy as np
import pytest

from analysis import claims
from analysis.claims import baselines, graft
from analysis.claims.finding import FAILS, HOLDS, UNDECIDED, at_most_zero, equal_to
from analysis.faithfulness import Case, Variant, draw
from benchmarks.worlds import sampling
from benchmarks.worlds.catalog import make_world
from benchmarks.worlds.policy import sampling_policy


@pytest.fixture(scope="module")
def findings():
    return claims.run(0, [Variant.parse(name) for name in ("grpo", "gigpo", "graphgpo")])


def of(findings, claim, statement=""):
    return [f for f in findings if f.claim.startswith(claim) and statement in f.statement]


class TestVerdicts:
    def test_where_its_condition_is_met_a_proposition_holds(self, findings):
        papers = [f for f in findings if f.claim.split()[0] in ("GRAFT", "GraphHCA", "GraphGPO", "G2PO")]
        met = [f for f in papers if f.met is not False and "our question" not in f.statement]
        assert len(met) > 30
        assert {f.verdict for f in met} == {HOLDS}

    def test_condition_40_is_met_with_many_rollouts_and_not_with_two(self, findings):
        layers = {f.setting: f for f in of(findings, "GRAFT Proposition 2") if f.setting.startswith("random_layers")}
        assert layers["random_layers, N=512"].met
        assert not layers["random_layers, N=2"].met
        for finding in layers.values():
            numbers = finding.numbers
            assert finding.met == (numbers["left of (40)"] <= numbers["right of (40)"])

    def test_dedicated_sinks_make_graph_gae_the_td(self, findings):
        (finding,) = of(findings, "Graph GAE, dedicated")
        assert finding.numbers["largest |GAE - TD|"] < 1e-12

    def test_merged_sinks_add_bias_where_episodes_are_cut_off(self, findings):
        merged = of(findings, "Graph GAE, merged", "adds no bias")
        assert FAILS in {f.verdict for f in merged if "horizon 15" in f.setting}

    def test_the_hindsight_ratio_needs_sure_transitions(self, findings):
        (slip,) = [f for f in of(findings, "GraphHCA Proposition 4.1") if f.setting.startswith("slip")]
        assert slip.verdict == FAILS
        assert slip.met is False

    def test_the_order_by_distance_fails_where_the_short_way_is_risky(self, findings):
        (slip,) = [f for f in of(findings, "GraphGPO Proposition 4.1", "our question") if f.setting.startswith("slip")]
        assert slip.verdict == FAILS
        assert slip.numbers["in the opposite order"] > 0.3

    def test_baselines_by_turn_number_pay_for_stopping_and_grpo_does_not(self, findings):
        assert {f.verdict for f in of(findings, "Per-turn-index")} == {FAILS}
        (grpo,) = of(findings, "Credit for stopping: grpo")
        assert grpo.verdict == HOLDS

    def test_only_estimators_that_care_have_a_length_weighting(self, findings):
        assert of(findings, "Length weighting: grpo")
        credit = draw(Case("detour", 8, 15))
        assert baselines._both_ways(Variant.parse("graft"), credit) is None

    def test_texts_hold_every_test_and_the_record_is_strict_json(self, findings):
        text = claims.markdown(findings)
        assert all(f.setting in text for f in findings)
        assert len(claims.record(findings)) == len(findings)
        json.dumps(claims.record(findings), allow_nan=False)
        assert all(f.claim[:20] in claims.terminal(findings) for f in findings)


class TestPopulationErrors:
    def test_they_are_what_sampling_gives(self):
        """GiGPO's and GRPO's population credits, computed row by row from 20000 sampled episodes."""
        world = make_world("slip")
        policy, rate = sampling_policy(world, 12, 0.5)
        errors, mixed = graft.population_errors(world, policy, 12, 0.9)
        steps = sampling.play(world, policy[None], np.zeros(20_000, dtype=int), 12, np.random.default_rng(0))
        solved = graft.exact.solve(world, policy, 12, 0.9)
        at = (12 - steps.step, steps.state)
        advantage = solved.advantage[(*at, steps.action)]
        won = steps.won[steps.episode].astype(float)
        returns = 0.9 ** (steps.lengths[steps.episode] - 1 - steps.step) * won
        assert np.mean((returns - solved.value[at] - advantage) ** 2) == pytest.approx(errors["E(GiGPO)"], rel=0.03)
        assert np.mean((won - rate - advantage) ** 2) == pytest.approx(errors["E(GRPO)"], rel=0.03)
        worth = np.where(world.ended[steps.next_state], world.goal[steps.next_state],
                         0.9 * solved.value[11 - steps.step, steps.next_state])  # fmt: skip
        assert np.mean((worth - solved.value[at] - advantage) ** 2) == pytest.approx(errors["E(graph)"], rel=0.05)
        assert 0 < mixed < 1

    def test_nothing_is_mixed_where_the_outcome_is_sure(self):
        world = make_world("random_layers", layers=2, width=2, passages=1)
        policy = np.where(world.admissible, 1.0, 0.0)
        policy[~world.admissible.any(1), -1] = 1.0
        errors, mixed = graft.population_errors(world, policy, 2, 0.9)
        assert mixed == 0
        assert errors["E(graph)"] == errors["E(GiGPO)"] == 0


class TestPerTurnCredit:
    def test_the_worked_example(self):
        assert baselines.worked_example().numbers == {"credit of stopping at once": 0.5, "of going on": -0.5}

    def test_it_is_that_of_a_plain_loop(self):
        sample = draw(Case("optional_stop", 4, 6))
        reward = sample.world.goal[sample.steps.next_state].astype(float)
        group = np.arange(len(sample.steps.won)) // 4
        found = baselines.per_turn_credit(reward, sample.steps, group)
        for group_number in range(5):
            trajectories = [reward[sample.steps.episode == e] for e in np.flatnonzero(group == group_number)]
            expected = []
            for own in trajectories:
                centered = [r - np.mean([o[t] for o in trajectories if len(o) > t]) for t, r in enumerate(own)]
                expected += [sum(centered[t:]) for t in range(len(own))]
            rows = group[sample.steps.episode] == group_number
            assert np.allclose(found[rows], expected)


def test_verdicts_follow_the_interval():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=400)
    assert at_most_zero([noise - 1])[0] == HOLDS
    assert at_most_zero([noise + 1])[0] == FAILS
    assert at_most_zero([noise])[0] == UNDECIDED
    assert equal_to(0.0, [noise])[0] == HOLDS
    assert equal_to(1.0, [noise])[0] == FAILS
    assert at_most_zero([np.array([1.0])])[0] == UNDECIDED
