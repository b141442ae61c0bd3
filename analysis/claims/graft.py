"""GRAFT (Yao et al. 2026, arXiv 2609.28963): Propositions 1 and 2, condition (40), and Graph GAE with two kinds of
sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from algorithms import RolloutBatch, estimate
from algorithms.estimators.graft import td_residual
from algorithms.graph import TrajectoryGraph
from algorithms.states import EncodedBatch, encode
from algorithms.walks import Field, discounted_means
from analysis.claims.finding import EXACT, FAILS, HOLDS, UNDECIDED, Finding, at_most_zero, exactly
from analysis.faithfulness import DISCOUNT, Case, Sample, draw
from analysis.faithfulness_metrics import bias_and_variance
from benchmarks.worlds import exact
from benchmarks.worlds.catalog import KINDS, make_world
from benchmarks.worlds.policy import sampling_policy
from benchmarks.worlds.world import World

HORIZON = 15
LAMBDA = 0.95


def findings(seed: int = 0) -> list[Finding]:
    """All tests of this paper's claims."""
    return [*proposition_1(seed), *proposition_2(seed), *dedicated_sinks(seed), *merged_sinks(seed)]


# --- Proposition 1: population credits --------------------------------------------------------------------------------


def proposition_1(seed: int) -> list[Finding]:
    """Exact, without sampling, in every world."""
    return [_population(kind, seed) for kind in KINDS]


def _population(kind: str, seed: int) -> Finding:
    world = make_world(kind, seed=seed)
    policy, _ = sampling_policy(world, HORIZON, 0.5, seed=seed)
    errors, mixed = population_errors(world, policy, HORIZON, DISCOUNT)
    least = min(errors["E(GiGPO)"], errors["E(GRPO)"])
    good = errors["E(graph)"] <= least + EXACT and (mixed == 0 or errors["E(graph)"] < least)
    return Finding(
        claim="GRAFT Proposition 1",
        statement="the population error of graph TD credit is at most that of GiGPO's and GRPO's, and less where "
        "state-actions with mixed outcomes are visited",
        condition="deterministic transitions",
        setting=f"{kind}, exact",
        met=world.deterministic,
        numbers={**errors, "visits with mixed outcomes": mixed},
        verdict=exactly(good),
    )


def population_errors(
    world: World, policy: np.ndarray, horizon: int, discount: float
) -> tuple[dict[str, float], float]:
    """({errors of the three population credits}, share of visits to state-actions with mixed outcomes).

    With values by steps to go: the graph credit errs by the spread of the next state's value; GiGPO's by
    `Var(G | s, a)`; GRPO's by `Var(R | s, a) + (E[R | s, a] - E[R] - A)^2`. Second moments of the return come from the
    recursion with discount^2.
    """
    solved, square = exact.solve(world, policy, horizon, discount), exact.solve(world, policy, horizon, discount**2)
    outcome = exact.solve(world, policy, horizon)
    weight = exact.visits(world, policy, horizon)[:, :, None] * policy
    weight = weight[::-1] / weight.sum()  # by steps to go 1..horizon
    q, rate = solved.action_value[1:], outcome.action_value[1:]
    graph = np.stack([_next_spread(world, solved.value[h], discount) for h in range(horizon)])
    step = np.maximum(square.action_value[1:] - q**2, 0.0)
    baseline = outcome.value[horizon, world.start]
    episode = rate * (1 - rate) + (rate - baseline - solved.advantage[1:]) ** 2
    mixed = (rate > EXACT) & (rate < 1 - EXACT)
    errors = {
        "E(graph)": float((weight * graph).sum()),
        "E(GiGPO)": float((weight * step).sum()),
        "E(GRPO)": float((weight * episode).sum()),
    }
    return errors, float((weight * mixed).sum())


def _next_spread(world: World, value: np.ndarray, discount: float) -> np.ndarray:
    """[states, actions] variance over outcomes of reward plus discounted value of the next state."""
    worth = np.where(world.ended, world.goal.astype(float), discount * value)[world.target]
    mean = (world.chance * worth).sum(-1, keepdims=True)
    return np.asarray((world.chance * (worth - mean) ** 2).sum(-1))


# --- Proposition 2: finite samples, condition (40) --------------------------------------------------------------------


@dataclass(frozen=True)
class _Setting:
    case: Case
    assumptions: bool  # deterministic, all episodes of one length, the state tells the time


def _settings(seed: int) -> list[_Setting]:
    layers = [_Setting(Case("random_layers", n, 6, invalid=0.0, seed=seed), True) for n in (2, 8, 32, 128, 512)]
    others = [
        _Setting(Case(kind, n, HORIZON, invalid=0.0, seed=seed), False)
        for kind in ("recovery", "random_graph", "slip", "aliased_rooms")
        for n in (8, 64)
    ]
    return layers + others


def proposition_2(seed: int) -> list[Finding]:
    """Sampled groups: both sides of condition (40), and the errors of the three credits."""
    return [_finite(setting) for setting in _settings(seed)]


@dataclass(frozen=True)
class FiniteErrors:
    """`squared` [groups] mean squared error of each credit; the two sides of condition (40), `left <= right`."""

    squared: dict[str, np.ndarray]
    left: float
    right: float


def _finite(setting: _Setting) -> Finding:
    sample = draw(setting.case, penalty=0.0)
    errors = finite_errors(sample)
    worst = [at_most_zero([errors.squared["graph"] - errors.squared[name]])[0] for name in ("GiGPO", "GRPO")]
    verdict = FAILS if FAILS in worst else UNDECIDED if UNDECIDED in worst else HOLDS
    case, condition = setting.case, errors.left <= errors.right
    return Finding(
        claim="GRAFT Proposition 2",
        statement="with the values estimated from N rollouts, the mean squared error of graph TD credit is at most "
        "that of GiGPO's and GRPO's",
        condition="condition (40); deterministic, one episode length, the state tells the time",
        setting=f"{case.world}, N={case.size}{'' if setting.assumptions else ', assumptions not met'}",
        met=setting.assumptions and condition,
        numbers={
            "left of (40)": errors.left,
            "right of (40)": errors.right,
            **{f"RMSE({name})": float(np.sqrt(value.mean())) for name, value in errors.squared.items()},
        },
        verdict=verdict,
    )


def finite_errors(sample: Sample) -> FiniteErrors:
    """Errors of the unnormalized credits against the exact advantage, in the paper's convention (the final state is
    worth R, so every value has one more discount than ours), averaged over groups and the actions of a group."""
    gamma, truth, steps, case = DISCOUNT, sample.truth, sample.steps, sample.case
    batch = encode(sample.batch)
    left = case.horizon - steps.step
    at = (left, steps.state, steps.action)
    advantage = gamma * truth.advantage
    outcome = steps.won[steps.episode].astype(float)
    returns = gamma ** (steps.lengths[steps.episode] - steps.step) * outcome
    count = np.bincount(batch.state, minlength=batch.nodes)
    baseline = (np.bincount(batch.state, weights=returns, minlength=batch.nodes) / np.maximum(count, 1))[batch.state]
    rate = steps.won.reshape(case.groups, case.size).mean(1)
    credits = {
        "graph": td_residual(TrajectoryGraph.merged(batch), gamma),
        "GiGPO": returns - baseline,
        "GRPO": outcome - rate[truth.group],
    }
    squared = {name: truth.group_mean((credit - advantage) ** 2) for name, credit in credits.items()}
    square = exact.solve(sample.world, sample.policy, case.horizon, gamma**2).action_value[at]
    spread = gamma**2 * np.maximum(square - sample.solution.action_value[at] ** 2, 0.0)
    state_error = truth.group_mean((baseline - gamma * sample.solution.value[left, steps.state]) ** 2).mean()
    outcome_error = sample.success * (1 - sample.success) / case.size
    graph_error = float(np.sqrt(squared["graph"].mean()))
    return FiniteErrors(
        squared,
        left=graph_error + float(np.sqrt(max(state_error, outcome_error))),
        right=float(np.sqrt(truth.group_mean(spread).mean())),
    )


# --- Graph GAE --------------------------------------------------------------------------------------------------------


def dedicated_sinks(seed: int) -> list[Finding]:
    """Graph GAE walked in full on single groups with dedicated sinks."""
    worst, walked = 0.0, 0
    for number in range(12):
        sample = draw(Case("random_graph", 8, HORIZON, seed=seed + number))
        group = _first_group(sample)
        graph = TrajectoryGraph.dedicated(group)
        residual = td_residual(graph, DISCOUNT)
        total = np.bincount(graph.source, weights=residual, minlength=graph.nodes)
        total[total == 0] = np.finfo(float).tiny  # or the walk would skip what sums to nothing
        field = Field(graph.edges, np.zeros(graph.nodes, dtype=np.int64), graph.out_count, total)
        rest = group.layout.length - 1 - group.layout.step
        ahead = discounted_means(field, graph.target, rest, DISCOUNT * LAMBDA)
        worst, walked = max(worst, float(np.abs(ahead).max())), walked + group.layout.rows
    return [
        Finding(
            claim="Graph GAE, dedicated sinks",
            statement="with exact values and a SUCCESS and a FAILURE node, Graph GAE is the one-step TD for every "
            "lambda",
            condition="",
            setting=f"random_graph, {walked} steps of 12 groups, lambda {LAMBDA}, walked in full",
            met=None,
            numbers={"largest |GAE - TD|": worst},
            verdict=exactly(worst < EXACT),
        )
    ]


def _first_group(sample: Sample) -> EncodedBatch:
    rows = sample.truth.group == 0
    columns = {name: sample.batch.column(name)[rows] for name in sample.batch.columns}
    return encode(RolloutBatch.from_columns(success_reward=sample.batch.success_reward, **columns))


_UNCUT = ("random_graph", 80)  # long enough that nearly all episodes end by themselves, in a goal or a trap
_GAE: dict[str, dict[str, Any]] = {
    "dedicated": {"sinks": "dedicated"},
    "merged TD": {"sinks": "merged", "gae_lambda": 0.0},
    "merged GAE": {"sinks": "merged", "gae_lambda": LAMBDA},
}


def merged_sinks(seed: int, worlds: int = 5) -> list[Finding]:
    """Squared bias and variance, unnormalized, of TD and Graph GAE with merged sinks against dedicated ones."""
    return [
        finding
        for kind, horizon in (("random_graph", HORIZON), ("key_and_door", HORIZON), ("sokoban", HORIZON), _UNCUT)
        for size in (8, 64)
        for finding in _merged(kind, size, horizon, seed, worlds)
    ]


def _merged(kind: str, size: int, horizon: int, seed: int, worlds: int) -> list[Finding]:
    parts = np.zeros((worlds, len(_GAE), 2))
    for number in range(worlds):
        sample = draw(Case(kind, size, horizon, invalid=0.0, seed=seed + number), penalty=0.0)
        for place, options in enumerate(_GAE.values()):
            credit = estimate("graft", sample.batch, gamma=DISCOUNT, normalize=False, **options).advantages
            # the paper's convention: the last step is worth gamma R, so credits are gamma times ours
            parts[number, place] = bias_and_variance(sample.truth, credit / DISCOUNT, fit_scale=False)
            parts[number, place] /= sample.power
    mean = parts.mean(0)
    names = list(_GAE)
    numbers = {
        f"{what}({name})": float(mean[place, column])
        for column, what in enumerate(("bias²", "var"))
        for place, name in enumerate(names)
    }
    bias = parts[:, :, 0]
    setting = f"{kind}, N={size}, horizon {horizon}, {worlds} worlds, over the mean of A²"
    return [
        Finding(
            claim="Graph GAE, merged sinks",
            statement="merging sinks into the observed final states adds no bias",
            condition="",
            setting=setting,
            met=None,
            numbers=numbers,
            verdict=at_most_zero([bias[:, 1] - bias[:, 0]])[0],
        ),
        Finding(
            claim="Graph GAE, merged sinks",
            statement="Graph GAE leaves no more bias than the one-step TD (it is meant to take some away)",
            condition="",
            setting=setting,
            met=None,
            numbers=numbers,
            verdict=at_most_zero([bias[:, 2] - bias[:, 1]])[0],
        ),
    ]
