"""Worlds and their exact values: against plain recursions, finite differences and sampling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms import RolloutBatch
from benchmarks.worlds import exact, sampling
from benchmarks.worlds.catalog import KINDS, make_world
from benchmarks.worlds.policy import sampling_policy, softmax
from benchmarks.worlds.sokoban import Sokoban
from benchmarks.worlds.world import NONSENSE, World


def plain_values(world: World, policy: np.ndarray, state: int, left: int, discount: float, penalty: float) -> float:
    """V by recursion over everything that can happen."""
    if left == 0 or world.goal[state] or world.dead[state]:
        return 0.0
    value = 0.0
    for action in range(len(world.actions)):
        value += policy[state, action] * plain_action_value(world, policy, state, action, left, discount, penalty)
    return value


def plain_action_value(world, policy, state, action, left, discount, penalty) -> float:
    value = 0.0 if world.admissible[state, action] else -penalty
    for following, chance in zip(world.target[state, action], world.chance[state, action], strict=True):
        if chance > 0:
            later = plain_values(world, policy, following, left - 1, discount, penalty)
            value += chance * (1.0 if world.goal[following] else discount * later)
    return value


@pytest.mark.parametrize("kind", KINDS)
class TestEveryWorld:
    def test_it_is_a_decision_process(self, kind):
        world = make_world(kind)
        assert np.allclose(world.chance.sum(-1), 1)
        assert world.goal.any()
        assert not world.ended[world.start]
        assert world.admissible[~world.ended].any(1).all()
        assert not world.admissible[world.ended].any()
        assert world.actions[-1] == NONSENSE
        assert not world.admissible[:, -1].any()
        assert (world.target[:, -1, 0] == np.arange(world.states)).all()

    def test_the_goal_can_be_reached_and_need_not_be(self, kind):
        world = make_world(kind)
        best = exact.best_values(world, discount=0.99)
        assert best[world.start].max() > 0.3
        never = softmax(world, np.where(np.arange(len(world.actions)) == len(world.actions) - 1, 50.0, 0.0))
        policy = np.broadcast_to(never, (world.states, len(world.actions)))
        assert exact.success(world, policy, 15) < 1e-15

    def test_equal_seeds_give_equal_worlds(self, kind):
        first, second = make_world(kind, seed=3), make_world(kind, seed=3)
        assert first.faces == second.faces
        assert np.array_equal(first.target, second.target)

    def test_exact_values_are_the_plain_recursion(self, kind):
        world = make_world(kind)
        policy, _ = sampling_policy(world, 4, 0.3, 0.1, seed=1)
        solved = exact.solve(world, policy, 4, 0.9, 0.02)
        for state in range(min(world.states, 6)):
            assert solved.value[4, state] == pytest.approx(plain_values(world, policy, state, 4, 0.9, 0.02), abs=1e-12)
        first = plain_action_value(world, policy, world.start, 0, 3, 0.9, 0.02)
        assert solved.action_value[3, world.start, 0] == pytest.approx(first, abs=1e-12)

    def test_the_policy_gradient_is_the_derivative_of_success(self, kind):
        world = make_world(kind)
        rng = np.random.default_rng(5)
        logits = rng.normal(size=world.admissible.shape)
        policy = softmax(world, logits)
        gradient = exact.policy_gradient(world, policy, exact.solve(world, policy, 8))
        direction = np.where(world.support, rng.normal(size=logits.shape), 0.0)
        up, down = (exact.success(world, softmax(world, logits + step * direction), 8) for step in (1e-5, -1e-5))
        assert float((gradient * direction).sum()) == pytest.approx((up - down) / 2e-5, abs=1e-7)

    def test_rollouts_succeed_as_often_as_computed_and_visit_what_is_computed(self, kind):
        world = make_world(kind)
        policy, rate = sampling_policy(world, 12, 0.4, 0.05, seed=2)
        steps = sampling.play(world, policy[None], np.zeros(4000, dtype=int), 12, np.random.default_rng(0))
        assert steps.won.mean() == pytest.approx(rate, abs=4 * np.sqrt(0.25 / 4000))
        reached = exact.visits(world, policy, 12)
        found = np.zeros_like(reached)
        np.add.at(found, (steps.step, steps.state), 1 / 4000)
        assert np.abs(found - reached).max() < 4 * np.sqrt(0.25 / 4000)

    def test_rollouts_are_a_valid_batch(self, kind):
        world = make_world(kind)
        policy, _ = sampling_policy(world, 10, 0.5, 0.2)
        steps = sampling.play(world, policy[None], np.zeros(16, dtype=int), 10, np.random.default_rng(0))
        columns = sampling.columns(world, steps, np.arange(16) // 8)
        batch = RolloutBatch.from_columns(success_reward=sampling.SUCCESS_REWARD, **columns)
        assert batch.rows == steps.rows
        assert (columns["valid"] == (columns["action"] != NONSENSE)).all()
        assert columns["reward"].sum() == 10.0 * steps.won.sum()
        assert steps.lengths.max() <= 10


class TestExactValues:
    def test_two_floors_by_hand(self):
        world = make_world("random_layers", layers=2, width=2, passages=2)
        policy = softmax(world, np.zeros((world.states, len(world.actions))))
        solved = exact.solve(world, policy, 2, discount=0.5)
        # half of the ways win; a third of the commands is nonsense, which costs a step, and there is none to spare
        assert solved.value[2, 0] == pytest.approx(0.5 * (2 / 3) * (2 / 3) * 0.5)

    def test_stopping_early_or_late_has_no_advantage(self):
        world = make_world("optional_stop", rounds=4, chance=0.6)
        policy, rate = sampling_policy(world, 4, 0.5, seed=3)
        solved = exact.solve(world, policy, 4)
        assert rate == pytest.approx(0.6)
        left = {"round 0 .": 4, "round 1 .": 3, "round 2 .": 2, "round 3 .": 1}
        for face, steps in left.items():
            state = world.faces.index(face)
            assert np.abs(solved.advantage[steps, state][world.admissible[state]]).max() < 1e-12

    def test_the_short_way_is_not_the_best_one(self):
        world = make_world("slip", bridge=2, road=5, slip=0.25)
        q = exact.best_values(world, discount=0.99)[world.start]
        assert q[world.actions.index("take road")] > q[world.actions.index("take bridge")]

    def test_many_policies_are_solved_at_once(self):
        world = make_world("recovery")
        policies = np.stack([sampling_policy(world, 10, rate)[0] for rate in (0.2, 0.8)])
        together = exact.solve(world, policies, 10, 0.9)
        for number, policy in enumerate(policies):
            assert np.allclose(together.value[:, number], exact.solve(world, policy, 10, 0.9).value)

    @settings(max_examples=15, deadline=None)
    @given(seed=st.integers(0, 10_000), horizon=st.integers(1, 12), discount=st.floats(0.1, 1.0))
    def test_values_are_rates_and_advantages_average_to_zero(self, seed, horizon, discount):
        world = make_world("random_graph", seed=seed)
        policy = softmax(world, np.random.default_rng(seed).normal(size=world.admissible.shape))
        solved = exact.solve(world, policy, horizon, discount)
        assert (solved.value >= 0).all()
        assert (solved.value <= 1 + 1e-12).all()
        assert np.abs((policy * solved.advantage).sum(-1)[1:]).max() < 1e-12
        assert (np.diff(solved.value, axis=0) >= -1e-12).all()  # more time never hurts


class TestPolicies:
    @pytest.mark.parametrize("wanted", [0.1, 0.5, 0.9])
    def test_they_succeed_and_fail_as_asked(self, wanted):
        world = make_world("sokoban")
        policy, rate = sampling_policy(world, 20, wanted, 0.1)
        assert rate == pytest.approx(wanted, abs=1e-6)
        assert np.allclose(policy[~world.ended, -1], 0.1)
        assert np.allclose(policy.sum(-1), 1)
        assert (policy[~world.support] == 0).all()

    def test_where_nothing_helps_the_policy_does_not_lean(self):
        world = make_world("optional_stop")
        policy, rate = sampling_policy(world, 10, 0.1)
        assert rate == pytest.approx(0.7)
        assert 0.1 < policy[world.start, world.actions.index("hand in")] < 0.9

    @pytest.mark.parametrize(("success", "invalid"), [(1.5, 0.0), (0.5, 1.0), (0.5, -0.1)])
    def test_rates_out_of_range_are_refused(self, success, invalid):
        with pytest.raises(ValueError, match="must lie"):
            sampling_policy(make_world("detour"), 10, success, invalid)


class TestSokoban:
    def rules(self) -> Sokoban:
        return Sokoban(((0, 0), frozenset({(0, 1)})), targets=frozenset({(0, 3)}), walls=frozenset({(1, 0)}))

    def test_a_push_moves_the_box_and_a_stuck_one_does_not_move(self):
        rules = self.rules()
        moves = rules.moves(rules.start)
        assert moves == {"go right": ((1.0, ((0, 1), frozenset({(0, 2)}))),)}  # left: the edge; down: a wall
        pushed = rules.moves(moves["go right"][0][1])["go right"][0][1]
        assert pushed == ((0, 2), frozenset({(0, 3)}))
        assert rules.won(pushed)
        assert "go right" not in Sokoban(pushed, frozenset({(3, 3)}), frozenset()).moves(pushed)

    def test_two_boxes_in_a_row_cannot_be_pushed(self):
        state = ((0, 0), frozenset({(0, 1), (0, 2)}))
        assert "go right" not in Sokoban(state, frozenset(), frozenset()).moves(state)

    def test_the_face_shows_the_board(self):
        rules = self.rules()
        assert rules.face(rules.start).startswith("player box floor target , wall floor floor floor ,")
        assert "player_on_target" in rules.face(((0, 3), frozenset({(0, 1)})))

    def test_levels_are_solved_within_the_bounds_and_can_be_spoiled(self):
        world = make_world("sokoban", shortest=5, longest=7, seed=4)
        best = exact.best_values(world, discount=0.5)
        assert 5 <= 1 - np.log2(best[world.start].max()) <= 7  # gamma^(moves - 1)
        assert (best.max(-1)[~world.ended] == 0).any()  # a box in a corner: no way back

    def test_two_boxes(self):
        assert make_world("sokoban", boxes=2, seed=1).states > 500

    def test_impossible_levels_are_refused(self):
        with pytest.raises(ValueError, match="1 or 2 boxes"):
            make_world("sokoban", boxes=3)
        with pytest.raises(ValueError, match="no sokoban level of 60 to 60 moves"):
            make_world("sokoban", shortest=60, longest=60)


class TestAliasing:
    def test_a_share_of_states_shares_faces_in_pairs(self):
        world = make_world("random_graph")
        assert len(set(world.aliased(0.0, 0).faces)) == len(set(world.faces))
        going = int((~world.ended).sum())
        assert len(set(world.aliased(1.0, 0).faces)) == len(set(world.faces)) - going // 2
        assert np.array_equal(world.aliased(1.0, 0).target, world.target)

    def test_rooms_that_look_alike_have_different_right_doors(self):
        world = make_world("aliased_rooms", rooms=6, faces=3)
        best = np.where(world.admissible, exact.best_values(world), -1).argmax(1)
        by_face: dict[str, set[int]] = {}
        for face, command in zip(world.faces, best, strict=True):
            by_face.setdefault(face, set()).add(int(command))
        assert any(len(commands) > 1 for face, commands in by_face.items() if face.startswith("a room"))

    def test_engine_keys_tell_all_states_apart(self):
        world = make_world("aliased_rooms")
        assert len(set(world.keys("engine"))) == world.states > len(set(world.keys("observation")))
        with pytest.raises(ValueError, match="unknown state key 'text'"):
            world.keys("text")

    def test_shares_out_of_range_are_refused(self):
        with pytest.raises(ValueError, match="aliasing must lie between 0 and 1"):
            make_world("detour").aliased(1.2, 0)


class TestBadInput:
    def test_unknown_kinds_and_options_name_what_is_known(self):
        with pytest.raises(ValueError, match=r"unknown world 'sokobn'; did you mean 'sokoban'\?"):
            make_world("sokobn")
        with pytest.raises(ValueError, match="has no option 'width'"):
            make_world("detour", width=2)

    @pytest.mark.parametrize(
        ("kind", "options"),
        [
            ("detour", {"junction": 9}),
            ("key_and_door", {"rooms": 2}),
            ("recovery", {"stages": 0}),
            ("optional_stop", {"chance": 1.0}),
            ("slip", {"slip": 1.0}),
            ("aliased_rooms", {"faces": 9}),
            ("random_graph", {"rooms": 40}),
            ("random_layers", {"layers": 1}),
        ],
    )
    def test_impossible_sizes_are_refused(self, kind, options):
        with pytest.raises(ValueError, match=f"{kind} needs"):
            make_world(kind, **options)
