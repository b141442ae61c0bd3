"""Equality with plain loops on random trajectories, for all options."""

from __future__ import annotations

import numpy as np
import pytest
from batches import batch_of, shuffled
from slow_oracle import ESTIMATORS, random_rows, slow_estimate

from algorithms import estimate

COMMON = [
    {},
    {"normalization": "mean"},
    {"baseline_over": "steps"},
    {"normalization": "mean", "baseline_over": "steps", "invalid_action_penalty": 0.7},
    {"invalid_action_penalty": 0.0},
]
OWN = {
    "grpo": [],
    "gigpo": [{"gamma": 1.0}, {"gamma": 0.5, "step_weight": 2.0}],
    "graphgpo": [{"omega": 0.8}, {"omega": 0.2, "progress": True}, {"omega": 1.0}, {"episode_weight": 0.0}],
    "g2po": [
        {"node_centric": False},
        {"edge_centric": False},
        {"group_aggregation": False},
        {"gamma": 0.8, "step_weight": 0.5},
    ],
    "graphhca": [
        {"power": 2.5},
        {"power": "inf"},
        {"power": 9.0, "gamma": 0.7, "floor": 1e-3},
        {"floor": 0.3, "episode_weight": 0.0},
    ],
    "graft": [
        {"gae_lambda": 0.0},
        {"gae_lambda": 1.0},
        {"gamma": 0.8, "gae_lambda": 0.6},
        {"sinks": "dedicated"},
        {"normalize": False},
        {"sinks": "dedicated", "normalize": False, "invalid_action_penalty": 0.0},
    ],
}
CASES = [(name, options) for name in ESTIMATORS for options in COMMON + OWN[name]]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda value: str(value))
@pytest.mark.parametrize("seed", range(4))
def test_equals_the_slow_loop(name, options, seed):
    rng = np.random.default_rng(seed)
    rows, _ = shuffled(random_rows(rng, states=int(rng.integers(2, 9))), seed)
    expected = slow_estimate(name, rows, 10.0, **options)
    np.testing.assert_allclose(estimate(name, batch_of(rows), **options).advantages, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equals_the_slow_loop_with_rewards_of_one(name):
    rows = random_rows(np.random.default_rng(9))
    for row in rows:
        row["reward"] /= 10.0
    result = estimate(name, batch_of(rows, success_reward=1.0)).advantages
    np.testing.assert_allclose(result, slow_estimate(name, rows, 1.0), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("seed", range(6))
def test_equals_the_slow_loop_where_a_state_is_not_the_one_observed_before(name, seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng)
    for row in rows:
        if rng.random() < 0.3:
            row["next_state"] = str(rng.choice(["nowhere", "s0", "s1"]))
    expected = slow_estimate(name, rows, 10.0)
    np.testing.assert_allclose(estimate(name, batch_of(rows)).advantages, expected, rtol=0, atol=1e-9)


def test_dense_rewards_are_discounted_where_they_occur():
    rng = np.random.default_rng(3)
    rows = random_rows(rng, horizon=20)
    for row in rows:
        row["reward"] = float(rng.normal())
    expected = slow_estimate("gigpo", rows, 10.0, gamma=0.9)
    np.testing.assert_allclose(estimate("gigpo", batch_of(rows), gamma=0.9).advantages, expected, rtol=0, atol=1e-9)
