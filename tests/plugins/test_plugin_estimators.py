"""RLOO, SALT, RTMC and HGPO: worked examples, plain loops, reductions, and what any estimator must keep."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms import OptionError, RolloutBatch, built_in, estimate, estimators, options_type
from sweeps.config import compose
from sweeps.quickstart import default_methods

PLUGINS = ("hgpo", "rloo", "rtmc", "salt")
QUICK = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


def batch_of(rows, success_reward=10.0):
    return RolloutBatch.from_columns(success_reward=success_reward, **{key: [r[key] for r in rows] for key in rows[0]})


def episode(trajectory, states, success, group="g", actions=None, invalid=()):
    steps = len(states) - 1
    return [
        {
            "group": group, "trajectory": trajectory, "step": t, "state": states[t],
            "action": actions[t] if actions else f"to {states[t + 1]}", "next_state": states[t + 1],
            "valid": t not in invalid, "reward": 10.0 * (success and t == steps - 1), "success": success,
        }
        for t in range(steps)
    ]  # fmt: skip


def random_rows(seed, groups=2, states=5):
    rng = np.random.default_rng(seed)
    rows = []
    for group in range(groups):
        for trajectory in range(int(rng.integers(1, 6))):
            walk = [f"s{s}" for s in rng.integers(0, states, int(rng.integers(2, 9)))]
            actions = [f"a{a}" for a in rng.integers(0, 2, len(walk) - 1)]
            invalid = set(np.flatnonzero(rng.random(len(walk)) < 0.2).tolist())
            rows += episode(trajectory, walk, bool(rng.random() < 0.5), f"g{group}", actions, invalid)
    return rows


def advantages(name, rows, **options):
    return estimate(name, batch_of(rows), **options).advantages


# --- plain loops ------------------------------------------------------------------------------------------------------


def groups_of(rows):
    groups = defaultdict(list)
    for index, row in enumerate(rows):
        groups[row["group"]].append(index)
    return groups.values()


def walks_of(rows, members):
    walks = defaultdict(list)
    for index in sorted(members, key=lambda i: rows[i]["step"]):
        walks[rows[index]["trajectory"]].append(index)
    return list(walks.values())


def normalized(values):
    if len(values) == 1:
        return [0.0]
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1))
    return [0.0] * len(values) if std < 1e-12 * max(map(abs, values)) else [(x - mean) / (std + 1e-6) for x in values]


def outcome(rows, walk):
    return 10.0 * rows[walk[0]]["success"] - 0.1 * sum(not rows[i]["valid"] for i in walk)


def step_returns(rows, walks, gamma=0.95):
    result = {}
    for walk in walks:
        for place, index in enumerate(walk):
            future = sum(gamma**k * rows[later]["reward"] for k, later in enumerate(walk[place:]))
            result[index] = future - 0.1 * (not rows[index]["valid"])
    return result


def slow_rloo(rows):
    result = [0.0] * len(rows)
    for members in groups_of(rows):
        walks = walks_of(rows, members)
        scores = [outcome(rows, walk) for walk in walks]
        for k, walk in enumerate(walks):
            others = scores[:k] + scores[k + 1 :]
            for index in walk:
                result[index] = scores[k] - sum(others) / len(others) if others else 0.0
    return result


def slow_salt(rows):
    result = [0.0] * len(rows)
    for members in groups_of(rows):
        walks = walks_of(rows, members)
        credit = normalized([outcome(rows, walk) for walk in walks])
        shared = defaultdict(list)
        for value, walk in zip(credit, walks, strict=True):
            for i in walk:
                shared[rows[i]["state"], rows[i]["action"], rows[i]["next_state"]].append((i, value))
        for entries in shared.values():
            for i, _ in entries:
                result[i] = sum(value for _, value in entries) / len(entries)
    return result


def slow_rtmc(rows, first_visit=True, prior=0.0, normalize=False):
    result = [0.0] * len(rows)
    for members in groups_of(rows):
        walks = walks_of(rows, members)
        returns = step_returns(rows, walks, 0.99)
        of_state, of_choice = defaultdict(list), defaultdict(list)
        for walk in walks:
            taken = set()
            for i in walk:
                choice = (rows[i]["state"], rows[i]["action"])
                if choice not in taken or not first_visit:
                    of_state[choice[0]].append(returns[i])
                    of_choice[choice].append(returns[i])
                taken.add(choice)
        mean_outcome = sum(10.0 * rows[walk[0]]["success"] for walk in walks) / len(walks)
        for i in members:
            seen, followed = of_state[rows[i]["state"]], of_choice[rows[i]["state"], rows[i]["action"]]
            baseline = (sum(seen) + prior * mean_outcome) / (len(seen) + prior)
            result[i] = sum(followed) / len(followed) - baseline
        spread = np.std([result[i] for i in members])
        if normalize and spread > 1e-8:
            for i in members:
                result[i] /= spread
    return result


def slow_hgpo(rows, history=2, alpha=1.0, base_group=False):
    result = [0.0] * len(rows)
    for members in groups_of(rows):
        walks = walks_of(rows, members)
        returns = step_returns(rows, walks)
        votes = defaultdict(list)
        if base_group:
            for value, walk in zip(normalized([outcome(rows, walk) for walk in walks]), walks, strict=True):
                for i in walk:
                    votes[i].append((1.0, value))
        for k in range(1, history + 2):
            pools = defaultdict(list)
            for walk in walks:
                for place in range(k - 1, len(walk)):
                    recent = tuple(rows[i]["state"] for i in walk[place - k + 1 : place + 1])
                    pools[recent].append(walk[place])
            for pool in pools.values():
                for i, value in zip(pool, normalized([returns[i] for i in pool]), strict=True):
                    votes[i].append(((k + 1) ** alpha, value))
        for i, levels in votes.items():
            heard = [(weight, value) for weight, value in levels if value != 0.0]
            if heard:
                result[i] = sum(w * v for w, v in heard) / sum(w for w, _ in heard)
    return result


CASES = [
    ("rloo", slow_rloo, {}),
    ("salt", slow_salt, {}),
    ("rtmc", slow_rtmc, {}),
    ("rtmc", slow_rtmc, {"prior": 2.0, "normalize": True}),
    ("rtmc", slow_rtmc, {"first_visit": False, "prior": 3.0}),
    ("hgpo", slow_hgpo, {}),
    ("hgpo", slow_hgpo, {"history": 0}),
    ("hgpo", slow_hgpo, {"history": 4, "alpha": 0.5, "base_group": True}),
]


@pytest.mark.parametrize(("name", "slow", "options"), CASES)
@QUICK
@given(seed=seeds)
def test_plain_loops_agree(name, slow, options, seed):
    rows = random_rows(seed, states=4)
    np.testing.assert_allclose(advantages(name, rows, **options), slow(rows, **options), rtol=0, atol=1e-7)


# --- worked examples and reductions -----------------------------------------------------------------------------------


class TestExamples:
    won = episode(0, "abc", True)
    lost = episode(1, "abd", False)
    also_lost = episode(2, "ae", False)
    rows = won + lost + also_lost

    def test_rloo_leaves_itself_out(self):
        assert advantages("rloo", self.rows).tolist() == pytest.approx([10, 10, -5, -5, -5])

    def test_rloo_is_a_multiple_of_centered_grpo(self):
        centered = advantages("grpo", self.rows, normalization="mean")
        np.testing.assert_allclose(advantages("rloo", self.rows), centered * 3 / 2)

    def test_rloo_over_steps_compares_rows(self):
        rows = episode(0, "abc", True) + episode(1, "ad", False, invalid=(0,))
        assert advantages("rloo", rows, baseline_over="steps").tolist() == pytest.approx([10 - 4.95, 10 - 4.95, -10.1])

    def test_salt_shares_the_credit_of_a_shared_transition(self):
        win, loss = advantages("grpo", self.rows)[[0, 2]]
        expected = [(win + loss) / 2, win, (win + loss) / 2, loss, loss]
        np.testing.assert_allclose(advantages("salt", self.rows), expected)
        assert estimate("salt", batch_of(self.rows)).diagnostics["shared_fraction"] == pytest.approx(2 / 5)

    def test_salt_tells_transitions_of_one_action_apart(self):
        rows = episode(0, "ab", True, actions=["x"]) + episode(1, "ac", False, actions=["x"])
        np.testing.assert_allclose(advantages("salt", rows), advantages("grpo", rows))

    def test_rtmc_is_the_mean_of_the_action_less_that_of_the_state(self):
        g = 0.99
        of_a, of_b = (10 * g + 0 + 0) / 3, 10 / 2
        to_b = (10 * g + 0) / 2 - of_a
        expected = [to_b, 10 - of_b, to_b, -of_b, -of_a]
        np.testing.assert_allclose(advantages("rtmc", self.rows), expected)

    def test_rtmc_counts_a_trajectory_once(self):
        rows = episode(0, "aab", True, actions=["x", "y"]) + episode(1, "ab", False, actions=["y"])
        # First visits of (a, x): 9.9; of (a, y): 10 and 0; of a: all three.
        of_a = (9.9 + 10 + 0) / 3
        np.testing.assert_allclose(advantages("rtmc", rows), [9.9 - of_a, 5 - of_a, 5 - of_a])
        looped = episode(0, "aaa", True, actions="xx")
        assert not advantages("rtmc", looped).any()  # the second x is no visit of its own

    def test_without_earlier_states_hgpo_is_the_step_term_of_gigpo(self):
        rows = random_rows(7)
        step_term = advantages("gigpo", rows) - advantages("grpo", rows)
        np.testing.assert_allclose(advantages("hgpo", rows, history=0), step_term, atol=1e-9)

    def test_hgpo_weighs_what_agrees_longer_more(self):
        rows = episode(0, "pqz", True) + episode(1, "pqy", False) + episode(2, "rqx", False)
        half = 1 / math.sqrt(2)
        at_q = np.array([2, -1, -1]) / math.sqrt(3)  # 10, 0, 0 normalized
        values = advantages("hgpo", rows, history=1)
        np.testing.assert_allclose(values[[0, 2, 4]], [half, -half, 0], atol=1e-5)
        expected = [(2 * at_q[0] + 3 * half) / 5, (2 * at_q[1] - 3 * half) / 5, at_q[2]]
        np.testing.assert_allclose(values[[1, 3, 5]], expected, atol=1e-5)


# --- what holds for all -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLUGINS)
class TestEveryPlugin:
    @QUICK
    @given(seed=seeds)
    def test_row_order_names_and_other_groups_change_nothing(self, name, seed):
        rows = random_rows(seed)
        plain = advantages(name, rows)
        order = np.random.default_rng(seed).permutation(len(rows))
        renamed = [
            dict(
                rows[i],
                group="z" + rows[i]["group"],
                trajectory=9 - rows[i]["trajectory"],
                state=rows[i]["state"][::-1] + "é\n",
                next_state=rows[i]["next_state"][::-1] + "é\n",
                action="do " + rows[i]["action"],
            )
            for i in order
        ]
        np.testing.assert_allclose(advantages(name, renamed), plain[order], rtol=0, atol=1e-9)
        alone = [row for row in rows if row["group"] == "g0"]
        np.testing.assert_allclose(advantages(name, alone), plain[: len(alone)], rtol=0, atol=1e-9)

    @pytest.mark.parametrize(
        "rows",
        [
            episode(0, "ab", True),
            episode(0, "aaaa", False),
            episode(0, "ab", True) + episode(1, "ab", True),
            episode(0, "ab", False) + episode(1, "ac", False),
            episode(0, ["x" * 10**5, "💡", "\x00"], True) + episode(1, ["💡", "💡"], True),
        ],
    )
    @pytest.mark.parametrize("how", ["trajectories", "steps"])
    def test_degenerate_batches_give_finite_numbers(self, name, rows, how):
        result = estimate(name, batch_of(rows), baseline_over=how)
        assert np.isfinite(result.advantages).all()
        assert all(math.isfinite(value) for value in result.diagnostics.values())

    def test_a_lone_trajectory_teaches_nothing(self, name):
        assert not advantages(name, episode(0, "abc", True)).any()

    def test_equal_outcomes_of_equal_length_teach_nothing(self, name):
        rows = episode(0, "abc", True) + episode(1, "adc", True)
        np.testing.assert_allclose(advantages(name, rows), 0.0, atol=1e-12)

    def test_it_is_registered_configured_and_not_in_the_default_comparison(self, name):
        assert name in estimators()
        assert name not in built_in()
        assert name not in default_methods()
        algorithm = compose([f"algorithm={name}"])["algorithm"]
        assert algorithm["name"] == name
        assert set(algorithm["options"]) <= set(options_type(name).__dataclass_fields__)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hgpo", {"history": -1}, "option 'history' is -1; it must be a number >= 0"),
        ("hgpo", {"history": 1.5}, "whole number"),
        ("hgpo", {"alpha": -1}, "'alpha' is -1"),
        ("hgpo", {"base_group": 1}, "true or false"),
        ("rtmc", {"prior": -1}, "'prior' is -1"),
        ("rtmc", {"first_visit": None}, "true or false"),
        ("rtmc", {"gamma": 0}, "must be a number > 0"),
        ("salt", {"gamma": 1}, "has no option 'gamma'"),
    ],
)
def test_wrong_options_are_one_clear_error(name, options, message):
    with pytest.raises(OptionError, match=message):
        advantages(name, episode(0, "ab", True), **options)
