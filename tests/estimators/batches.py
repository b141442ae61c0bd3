"""Small batches for the estimator tests."""

from __future__ import annotations

import numpy as np

from algorithms import RolloutBatch


def batch_of(rows, success_reward=10.0):
    """A batch of a list of row dictionaries."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return RolloutBatch.from_columns(success_reward=success_reward, **columns)


def episode(trajectory, states, success, group="g", reward=10.0, invalid=()):
    """Rows of one trajectory that walks through `states`, one more than it has steps."""
    steps = len(states) - 1
    return [
        {
            "group": group,
            "trajectory": trajectory,
            "step": t,
            "state": states[t],
            "action": f"to {states[t + 1]}",
            "next_state": states[t + 1],
            "valid": t not in invalid,
            "reward": reward * (success and t == steps - 1),
            "success": success,
        }
        for t in range(steps)
    ]


def shuffled(rows, seed):
    """The rows in another order, and the order."""
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[i] for i in order], order
