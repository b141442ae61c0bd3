"""Estimators against exact advantages: sample groups of rollouts in known worlds, estimate, compare.

The exact advantage is that of the sampling policy with the discount that all estimators are given and the steps that
remain; reward is 1 on success, less the penalty of invalid actions in units of the success reward.
"""

from __future__ import annotations

import contextlib
import dataclasses
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from algorithms import OptionError, RolloutBatch, estimate, estimators, options_type
from analysis import faithfulness_metrics as metrics
from analysis.faithfulness_metrics import Truth
from benchmarks.worlds import exact, sampling
from benchmarks.worlds.catalog import KINDS, make_world
from benchmarks.worlds.policy import sampling_policy
from benchmarks.worlds.world import World

DISCOUNT = 0.95
PENALTY = 0.1 / sampling.SUCCESS_REWARD  # the common options' default, in units of success
TRAJECTORIES = 1600  # sampled of each world, in groups
FEWEST_GROUPS = 60
REPEATS = 5  # worlds and policies of a case
MEASURES = ("mse", "mse_scaled", "sign", "rank", "cosine", "mean_cosine", "bias2", "variance", "zero")


@dataclass(frozen=True)
class Case:
    """What is sampled: a world, a policy in it, and groups of `size` rollouts.

    success    wanted success rate of the policy; `Sample.success` says which one it has
    invalid    probability of a command that is not admissible
    aliasing   share of states that share the face of another one (on top of what the world itself aliases)
    key        what estimators group states by: "observation" (the face) or "engine" (all states apart)
    """

    world: str = "random_graph"
    size: int = 8
    horizon: int = 15
    success: float = 0.5
    invalid: float = 0.05
    aliasing: float = 0.0
    key: str = "observation"
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def groups(self) -> int:
        """Groups that are sampled."""
        return max(FEWEST_GROUPS, TRAJECTORIES // self.size)


@dataclass(frozen=True, eq=False)
class Sample:
    """Rollouts of a case with their exact advantages. `success` is the policy's exact rate; `power` the mean of A^2."""

    case: Case
    world: World
    policy: np.ndarray
    solution: exact.Solution
    steps: sampling.Steps
    batch: RolloutBatch
    truth: Truth
    success: float

    @property
    def power(self) -> float:
        """Mean over rows of the squared exact advantage: the error of an estimator that always says 0."""
        return float(np.mean(self.truth.advantage**2))


def draw(case: Case, discount: float = DISCOUNT, penalty: float = PENALTY) -> Sample:
    """Sample a case. Equal cases give equal samples."""
    world = make_world(case.world, seed=case.seed, **case.options).aliased(case.aliasing, case.seed)
    policy, success = sampling_policy(world, case.horizon, case.success, case.invalid, case.seed)
    rng = np.random.default_rng((case.seed, zlib.crc32(repr(case).encode())))
    owner = np.zeros(case.groups * case.size, dtype=np.int64)
    steps = sampling.play(world, policy[None], owner, case.horizon, rng)
    group = np.arange(len(owner)) // case.size
    solution = exact.solve(world, policy, case.horizon, discount, penalty)
    batch = RolloutBatch.from_columns(
        success_reward=sampling.SUCCESS_REWARD, **sampling.columns(world, steps, group, case.key)
    )
    truth = Truth(
        group=group[steps.episode],
        state=steps.state,
        action=steps.action,
        step=steps.step,
        advantage=solution.advantage[case.horizon - steps.step, steps.state, steps.action],
        policy=policy,
        gradient=exact.policy_gradient(world, policy, solution),
        groups=case.groups,
    )
    return Sample(case, world, policy, solution, steps, batch, truth, success)


# --- estimators -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """A registered estimator with options; `label` is what the user wrote, such as `graft:sinks=dedicated`."""

    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, text: str) -> Variant:
        """`name`, or `name:option=value:option=value`. Raises OptionError for what is not registered or known."""
        name, *parts = text.strip().split(":")
        options: dict[str, Any] = {}
        for part in parts:
            key, equals, value = part.partition("=")
            if not equals:
                raise OptionError(f"estimator {text!r}: write options as name:option=value, got {part!r}")
            options[key] = _value(value)
        fields = {f.name for f in dataclasses.fields(options_type(name))}
        unknown = sorted(set(options) - fields)
        if unknown:
            raise OptionError(f"estimator {name!r} has no option {unknown[0]!r} (known: {', '.join(sorted(fields))})")
        options_type(name)(**options)
        return cls(text.strip(), name, options)

    def advantages(self, batch: RolloutBatch, discount: float | None = DISCOUNT) -> np.ndarray:
        """[rows]; an estimator with an option `gamma` gets the discount, unless the variant sets its own."""
        options = dict(self.options)
        if discount is not None and "gamma" in {f.name for f in dataclasses.fields(options_type(self.name))}:
            options.setdefault("gamma", discount)
        return estimate(self.name, batch, **options).advantages


def _value(text: str) -> Any:
    """The text as a flag or a number where it is one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def variants(chosen: Iterable[str] | None = None) -> list[Variant]:
    """The chosen estimators, or every registered one. Raises OptionError for one that is unknown or named twice."""
    found = [Variant.parse(text) for text in (estimators() if chosen is None else chosen)]
    labels = [variant.label for variant in found]
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise OptionError(f"{twice[0]!r} is named twice")
    return found


# --- measurement ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Measured:
    """Measures of one estimate: `by_group` [groups] arrays, NaN where a group does not tell; `whole` one number each.

    mse          mean squared error as it is
    mse_scaled   after the best scale, over the mean of A^2: 0 is exact, 1 no better than saying 0
    sign, rank   share of right signs; Kendall's tau within states
    cosine       of a group's policy gradient with the exact one; mean_cosine: of all groups' mean gradient
    bias2, variance  squared bias and variance over the mean of A^2, at the scale that fits the expected estimate best
    zero         share of rows that get no credit
    """

    by_group: Mapping[str, np.ndarray]
    whole: Mapping[str, float]


def measure(sample: Sample, guess: np.ndarray) -> Measured:
    """Compare an estimate [rows] with the exact advantages of its sample."""
    truth, power = sample.truth, max(sample.power, 1e-300)
    scaled = metrics.best_scale(truth, guess) * guess
    by_group = {
        "mse": metrics.squared_error(truth, guess),
        "mse_scaled": metrics.squared_error(truth, scaled) / power,
        "sign": metrics.sign_accuracy(truth, guess),
        "rank": metrics.rank_correlation(truth, guess),
        "cosine": metrics.gradient_cosine(truth, guess),
        "zero": truth.group_mean(np.abs(guess) < metrics.ZERO),
    }
    bias2, variance = metrics.bias_and_variance(truth, guess)
    return Measured(
        by_group,
        {
            "mean_cosine": metrics.mean_gradient_cosine(truth, guess),
            "bias2": bias2 / power,
            "variance": variance / power,
        },
    )


def combine(parts: Sequence[Measured]) -> dict[str, Any]:
    """Plain numbers of one measure over several worlds: `name` and `name_ci`, half the width of the 95 % interval.

    Measures of groups are averaged over all groups, each world's spread counting around its own mean (worlds are
    fixed, groups are sampled); measures of a whole sample are averaged, their interval is over the worlds.
    """
    row: dict[str, Any] = {}
    for name in parts[0].by_group:
        row[name], row[f"{name}_ci"] = metrics.stratified_interval([part.by_group[name] for part in parts])
    for name in parts[0].whole:
        row[name], row[f"{name}_ci"] = metrics.interval(np.array([part.whole[name] for part in parts]))
    return row


def measure_case(
    case: Case, chosen: Sequence[Variant], axis: str = "", level: Any = None, repeats: int = REPEATS
) -> list[dict[str, Any]]:
    """One row an estimator: the case, the policies' exact success rate, and the measures of `Measured`.

    repeats  worlds (and policies), of the seeds `case.seed`, `case.seed + 1`, ...
    """
    samples = [draw(dataclasses.replace(case, seed=case.seed + i)) for i in range(repeats)]
    head = {
        "axis": axis,
        "level": level,
        "world": case.world,
        "size": case.size,
        "horizon": case.horizon,
        "success": float(np.mean([sample.success for sample in samples])),
        "invalid": case.invalid,
        "aliasing": case.aliasing,
        "key": case.key,
        "worlds": repeats,
        "groups": repeats * case.groups,
        "rows": sum(sample.steps.rows for sample in samples),
        "power": float(np.mean([sample.power for sample in samples])),
    }
    return [
        {"estimator": v.label, **head, **combine([measure(s, v.advantages(s.batch)) for s in samples])} for v in chosen
    ]


AXES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "N": ("size", (2, 4, 8, 16, 32, 64)),
    "horizon": ("horizon", (6, 10, 15, 25, 40)),
    "aliasing": ("aliasing", (0.0, 0.25, 0.5, 0.75, 1.0)),
    "invalid rate": ("invalid", (0.0, 0.05, 0.1, 0.2, 0.4)),
    "success rate": ("success", (0.05, 0.2, 0.5, 0.8, 0.95)),
}


def cases(seed: int = 0) -> Iterator[tuple[str, Any, Case]]:
    """(axis, level, case): every world as it is, then one axis at a time in the random graph."""
    for world in KINDS:
        yield "world", world, Case(world=world, seed=seed)
    for axis, (name, levels) in AXES.items():
        for level in levels:
            yield axis, level, dataclasses.replace(Case(seed=seed), **{name: level})


def run(
    chosen: Sequence[Variant],
    seed: int = 0,
    repeats: int = REPEATS,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Rows of all cases and estimators, JSON-able; see `measure_case`."""
    plan = list(cases(seed))
    rows: list[dict[str, Any]] = []
    for done, (axis, level, case) in enumerate(plan, start=1):
        rows += measure_case(case, chosen, axis, level, repeats)
        if progress is not None:
            progress(done, len(plan))
    return rows


def summary(
    estimator: str, seed: int = 0, worlds: Sequence[str] = tuple(KINDS), repeats: int = REPEATS
) -> list[dict[str, Any]]:
    """What the faithfulness runs show about one estimator, for its docs page: one row a world, groups of 8.

    estimator  a registered name, or `name:option=value`
    returns    JSON-able rows with the keys `world`, `success` (exact rate of the sampling policies), `groups`, and the
               measures of `Measured` with their `_ci`: plain numbers, None where a measure is not defined. Equal for
               equal arguments.

    Takes about a second. Raises OptionError for an unknown estimator.
    """
    variant = Variant.parse(estimator)
    return [measure_case(Case(world=w, seed=seed), [variant], "world", w, repeats)[0] for w in worlds]
