"""Tabular softmax policies, and policies of a wanted success rate and rate of inadmissible commands."""

from __future__ import annotations

import numpy as np

from benchmarks.worlds import exact
from benchmarks.worlds.world import World

NOISE = 0.5  # spread of the logits that differ from policy to policy
SHARPEST = 40.0  # how far logits may lean towards (or away from) the best commands


def softmax(world: World, logits: np.ndarray) -> np.ndarray:
    """Probabilities [..., states, actions] over each state's support."""
    masked = np.where(world.support, logits, -np.inf)
    powers = np.exp(masked - masked.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def with_invalid(world: World, policy: np.ndarray, rate: float) -> np.ndarray:
    """The policy with probability `rate` of NONSENSE in every state that goes on."""
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"the rate of invalid commands must lie in [0, 1), got {rate}")
    mixed = policy * (1.0 - rate) / np.maximum(1.0 - policy[..., -1:], 1e-300)
    mixed[..., -1] = rate
    mixed[..., world.ended, :] = 0.0
    mixed[..., world.ended, -1] = 1.0
    return mixed


def sampling_policy(
    world: World, horizon: int, success: float, invalid: float = 0.0, seed: int = 0
) -> tuple[np.ndarray, float]:
    """A softmax policy [states, actions] that succeeds about as often as wanted, and its exact success rate.

    Logits are noise plus a multiple of how good each command is; the multiple is found by bisection. Where no multiple
    gives the wanted rate (every way succeeds, say), the least one that comes nearest is taken: read the returned rate.
    """
    if not 0.0 <= success <= 1.0:
        raise ValueError(f"the wanted success rate must lie between 0 and 1, got {success}")
    noise = np.random.default_rng(seed).normal(scale=NOISE, size=world.admissible.shape)
    goodness = _goodness(world)

    def rate(lean: float) -> float:
        return float(exact.success(world, _lean(world, noise, goodness, lean, invalid), horizon))

    neutral = rate(0.0)
    if abs(neutral - np.clip(success, rate(-SHARPEST), rate(SHARPEST))) < 1e-6:
        return _lean(world, noise, goodness, 0.0, invalid), neutral
    low, high = (0.0, SHARPEST) if neutral < success else (-SHARPEST, 0.0)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if rate(middle) < success else (low, middle)
    lean = (low + high) / 2
    return _lean(world, noise, goodness, lean, invalid), rate(lean)


def _lean(world: World, noise: np.ndarray, goodness: np.ndarray, lean: float, invalid: float) -> np.ndarray:
    return with_invalid(world, softmax(world, noise + lean * goodness), invalid)


def _goodness(world: World) -> np.ndarray:
    """[states, actions] value of a command less the best one's, at most 0; the widest gap of a state is 1."""
    q = exact.best_values(world)  # at least 0, and 0 where a command is not admissible
    gap = np.where(world.admissible, q - q.max(-1, keepdims=True), 0.0)
    widest = np.abs(gap).max(-1, keepdims=True)
    return gap / np.where(widest > 0, widest, 1.0)
