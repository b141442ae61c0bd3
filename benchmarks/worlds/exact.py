"""Exact values of a policy in a world, by backward recursion over the steps that remain.

Reward is 1 on entering a goal, less `penalty` for a command that is not admissible. All functions take policies with
leading axes, so that many policies are solved at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.worlds.world import World


@dataclass(frozen=True, eq=False)
class Solution:
    """Values by steps to go h = 0..horizon (0: the episode is cut off, everything is 0).

    value         [horizon + 1, ..., states] V
    action_value  [horizon + 1, ..., states, actions] Q
    """

    value: np.ndarray
    action_value: np.ndarray

    @property
    def horizon(self) -> int:
        """Steps an episode may take."""
        return len(self.value) - 1

    @property
    def advantage(self) -> np.ndarray:
        """[horizon + 1, ..., states, actions] A = Q - V."""
        return self.action_value - self.value[..., None]


def backup(world: World, value: np.ndarray, discount: float, penalty: float = 0.0) -> np.ndarray:
    """Q [..., states, actions] of one step that leads to states worth `value` [..., states]."""
    worth = np.where(world.ended, world.goal.astype(float), discount * value)
    return (world.chance * worth[..., world.target]).sum(-1) - penalty * ~world.admissible


def solve(world: World, policy: np.ndarray, horizon: int, discount: float = 1.0, penalty: float = 0.0) -> Solution:
    """V, Q and A of `policy` [..., states, actions] in episodes of at most `horizon` steps."""
    value = np.zeros((horizon + 1, *policy.shape[:-1]))
    action_value = np.zeros((horizon + 1, *policy.shape))
    for left in range(1, horizon + 1):
        q = backup(world, value[left - 1], discount, penalty)
        v = (policy * q).sum(-1)
        value[left] = np.where(world.ended, 0.0, v)
        action_value[left] = np.where(world.ended[:, None], 0.0, q)
    return Solution(value, action_value)


def success(world: World, policy: np.ndarray, horizon: int) -> np.ndarray:
    """Probability [...] of reaching a goal from the start within the horizon."""
    value = np.zeros(policy.shape[:-1])
    for _ in range(horizon):
        value = np.where(world.ended, 0.0, (policy * backup(world, value, 1.0)).sum(-1))
    return value[..., world.start]


def visits(world: World, policy: np.ndarray, horizon: int) -> np.ndarray:
    """Probability [horizon, states] of acting in each state at step t = 0..horizon-1; policy [states, actions]."""
    reached = np.zeros((horizon, world.states))
    reached[0, world.start] = 1.0
    moves = step_matrix(world, policy)
    for t in range(1, horizon):
        reached[t] = np.where(world.ended, 0.0, reached[t - 1] @ moves)
    return reached


def step_matrix(world: World, policy: np.ndarray) -> np.ndarray:
    """[states, states] probability of going from one state to another in one step; rows of ended states are 0."""
    matrix = np.zeros((world.states, world.states))
    weight = (policy[:, :, None] * world.chance) * ~world.ended[:, None, None]
    source = np.broadcast_to(np.arange(world.states)[:, None, None], world.target.shape)
    np.add.at(matrix, (source.ravel(), world.target.ravel()), weight.ravel())
    return matrix


def policy_gradient(world: World, policy: np.ndarray, solution: Solution) -> np.ndarray:
    """`E[sum_t A_t(s_t, a_t) grad log pi(a_t | s_t)]` [states, actions], with respect to the logits.

    With discount 1 it is the gradient of the success probability less the expected penalties; with a smaller one it
    is what policy-gradient methods follow, which drop the factor discount^t.
    """
    reached = visits(world, policy, solution.horizon)
    ahead = solution.advantage[:0:-1]  # by step t: horizon - t steps to go
    return np.einsum("ts,tsa->sa", reached, policy * ahead)


def best_values(world: World, discount: float = 0.9, sweeps: int = 500) -> np.ndarray:
    """Q [states, actions] of the best policy without a horizon, by value iteration."""
    value = np.zeros(world.states)
    for _ in range(sweeps):
        q = np.where(world.admissible, backup(world, value, discount), 0.0)
        after = np.where(world.ended, 0.0, q.max(-1))
        if np.abs(after - value).max() < 1e-13:
            break
        value = after
    return np.asarray(q)
