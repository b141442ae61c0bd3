"""Rollouts of tabular policies, all episodes of a batch stepped together, as arrays and as rollout columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.worlds.world import World

SUCCESS_REWARD = 10.0


@dataclass(frozen=True, eq=False)
class Steps:
    """Executed steps, sorted by (episode, step).

    episode, step, state, action, next_state  [rows] integers
    won                                       [episodes] bool
    """

    episode: np.ndarray
    step: np.ndarray
    state: np.ndarray
    action: np.ndarray
    next_state: np.ndarray
    won: np.ndarray

    @property
    def rows(self) -> int:
        """Number of executed steps."""
        return len(self.episode)

    @property
    def lengths(self) -> np.ndarray:
        """[episodes] steps of each."""
        return np.bincount(self.episode, minlength=len(self.won))


def play(world: World, policy: np.ndarray, owner: np.ndarray, horizon: int, rng: np.random.Generator) -> Steps:
    """Play one episode for each entry of `owner`.

    policy  [policies, states, actions];  owner [episodes] which policy plays the episode
    """
    episodes = len(owner)
    cumulative, outcomes = policy.cumsum(-1), world.chance.cumsum(-1)
    at = np.full(episodes, world.start)
    going = np.arange(episodes)
    parts: list[np.ndarray] = []
    for step in range(horizon):
        state = at[going]
        action = _draw(cumulative[owner[going], state], rng)
        following = world.target[state, action, _draw(outcomes[state, action], rng)]
        parts.append(np.stack([going, np.full(len(going), step), state, action, following]))
        at[going] = following
        going = going[~world.ended[following]]
        if len(going) == 0:
            break
    episode, moment, state, action, following = np.concatenate(parts, axis=1)
    order = np.lexsort((moment, episode))
    return Steps(episode[order], moment[order], state[order], action[order], following[order], world.goal[at])


def _draw(cumulative: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One index a row of cumulative probabilities [rows, choices]; never one of probability 0."""
    point = rng.random(len(cumulative)) * cumulative[:, -1]
    return np.argmax(cumulative > point[:, None], axis=1)


def columns(world: World, steps: Steps, group: np.ndarray, key: str = "observation") -> dict[str, Any]:
    """Rollout columns of the steps; group [episodes] is each episode's group. An episode is its own trajectory."""
    keys = np.array(world.keys(key), dtype=object)
    names = np.array(world.actions, dtype=object)
    reached = world.goal[steps.next_state]
    return {
        "group": group[steps.episode],
        "trajectory": steps.episode,
        "step": steps.step,
        "state": keys[steps.state],
        "action": names[steps.action],
        "next_state": keys[steps.next_state],
        "valid": world.admissible[steps.state, steps.action],
        "reward": SUCCESS_REWARD * reached,
        "success": steps.won[steps.episode],
    }
