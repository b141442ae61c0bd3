"""Learning in known worlds: tabular softmax policies trained by policy gradient with each estimator, many seeds a time.

All seeds of a method step together: groups of rollouts of different seeds share a batch, which changes nothing, because
estimators never look across groups. Success is exact, by dynamic programming, not an average over episodes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from algorithms import RolloutBatch
from analysis.faithfulness import DISCOUNT, PENALTY, Variant
from benchmarks.worlds import exact, sampling
from benchmarks.worlds.catalog import make_world
from benchmarks.worlds.policy import sampling_policy, softmax
from benchmarks.worlds.world import World

EXACT = "exact advantage"  # the reference: the sampled steps, credited with their exact advantages
KINDS = ("detour", "key_and_door", "recovery", "slip", "aliased_rooms", "random_graph", "random_layers", "sokoban")
_ADAM = (0.9, 0.95, 1e-8)


@dataclass(frozen=True)
class Setting:
    """One world and how it is learned.

    seeds     policies trained side by side, each from its own start
    updates   policy-gradient steps; success is taken before the first and after every `every`-th
    size      rollouts of a group;  groups  of each seed and update
    start     success rate of the policies at the start;  invalid  their rate of inadmissible commands
    rate      step size of Adam on the logits (it makes the scale of an estimator irrelevant)
    """

    world: str
    seeds: int = 100
    updates: int = 80
    every: int = 3
    horizon: int = 15
    size: int = 8
    groups: int = 1
    start: float = 0.1
    invalid: float = 0.05
    rate: float = 0.05
    seed: int = 0

    @property
    def marks(self) -> list[int]:
        """Updates at which success is taken."""
        return [update for update in range(self.updates + 1) if update % self.every == 0 or update == self.updates]


@dataclass(frozen=True, eq=False)
class Learned:
    """`success` [marks, seeds]: exact success rates of one method in one world."""

    method: str
    setting: Setting
    success: np.ndarray

    @property
    def final(self) -> np.ndarray:
        """[seeds] success after the last update."""
        return np.asarray(self.success[-1])

    @property
    def area(self) -> np.ndarray:
        """[seeds] mean success over the updates, by the trapezoid rule."""
        marks = self.setting.marks
        return np.asarray(np.trapezoid(self.success, marks, axis=0) / max(marks[-1], 1))


def start_logits(world: World, setting: Setting) -> np.ndarray:
    """[seeds, states, actions] logits at the start, the same for every method."""
    policies = [
        sampling_policy(world, setting.horizon, setting.start, setting.invalid, setting.seed * 1_000_003 + number)[0]
        for number in range(setting.seeds)
    ]
    return np.log(np.maximum(np.stack(policies), 1e-30))


def learn(method: str, setting: Setting) -> Learned:
    """Train all seeds with a method: EXACT, or what `Variant.parse` reads. Equal arguments give equal results."""
    world = make_world(setting.world, seed=setting.seed)
    credit = _exact_credit(world, setting) if method == EXACT else _estimated_credit(world, setting, method)
    logits = start_logits(world, setting)
    first, second = np.zeros_like(logits), np.zeros_like(logits)
    owner = np.repeat(np.arange(setting.seeds), setting.groups * setting.size)
    rng = np.random.default_rng((setting.seed, zlib.crc32(setting.world.encode())))
    curve = []
    for update in range(setting.updates + 1):
        policy = softmax(world, logits)
        if update in setting.marks:
            curve.append(exact.success(world, policy, setting.horizon))
        if update == setting.updates:
            break
        steps = sampling.play(world, policy, owner, setting.horizon, rng)
        gradient = _gradient(policy, steps, owner, credit(policy, steps))
        first = _ADAM[0] * first + (1 - _ADAM[0]) * gradient
        second = _ADAM[1] * second + (1 - _ADAM[1]) * gradient**2
        mean, power = first / (1 - _ADAM[0] ** (update + 1)), second / (1 - _ADAM[1] ** (update + 1))
        logits = logits + setting.rate * mean / (np.sqrt(power) + _ADAM[2])
    return Learned(method, setting, np.stack(curve))


Credit = Callable[[np.ndarray, sampling.Steps], np.ndarray]  # policies, steps -> [rows] advantages


def _estimated_credit(world: World, setting: Setting, method: str) -> Credit:
    variant = Variant.parse(method)

    def credit(_: np.ndarray, steps: sampling.Steps) -> np.ndarray:
        group = np.arange(len(steps.won)) // setting.size
        columns = sampling.columns(world, steps, group)
        return variant.advantages(RolloutBatch.from_columns(success_reward=sampling.SUCCESS_REWARD, **columns))

    return credit


def _exact_credit(world: World, setting: Setting) -> Credit:
    def credit(policy: np.ndarray, steps: sampling.Steps) -> np.ndarray:
        solution = exact.solve(world, policy, setting.horizon, DISCOUNT, PENALTY)
        owner = steps.episode // (setting.groups * setting.size)
        return np.asarray(solution.advantage[setting.horizon - steps.step, owner, steps.state, steps.action])

    return credit


def _gradient(policy: np.ndarray, steps: sampling.Steps, owner: np.ndarray, credit: np.ndarray) -> np.ndarray:
    """[seeds, states, actions] mean over a seed's steps of `credit * grad log pi`, with respect to the logits."""
    seeds, states, actions = policy.shape
    seed = owner[steps.episode]
    place = (seed * states + steps.state) * actions + steps.action
    taken = np.bincount(place, weights=credit, minlength=policy.size).reshape(policy.shape)
    gradient = taken - taken.sum(-1, keepdims=True) * policy
    return np.asarray(gradient / np.bincount(seed, minlength=seeds)[:, None, None])


def plan(
    methods: Sequence[str], kinds: Sequence[str], seeds: int, updates: int, seed: int
) -> list[tuple[str, Setting]]:
    """Every method in every world, the reference among them. ValueError for no seeds or updates."""
    if seeds < 2 or updates < 1:
        raise ValueError(f"learning needs 2 seeds and 1 update or more, got {seeds} and {updates}")
    return [
        (method, Setting(kind, seeds=seeds, updates=updates, seed=seed))
        for kind in kinds
        for method in (*methods, EXACT)
    ]
