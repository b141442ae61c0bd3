"""GraphHCA (Zhu et al. 2026): Propositions 4.1 to 4.4."""

from __future__ import annotations

import numpy as np

from algorithms.estimators.graphhca import GraphHCAOptions, potential, step_credit
from algorithms.graph import TrajectoryGraph
from algorithms.states import encode
from analysis.claims.finding import EXACT, Finding, exactly
from analysis.faithfulness import Case, draw
from benchmarks.worlds import exact
from benchmarks.worlds.catalog import make_world
from benchmarks.worlds.policy import sampling_policy
from benchmarks.worlds.world import World

LONG = 2000  # steps: success no longer depends on the steps that remain
SHORT = 15
FLOOR = 1e-2
GAMMA = 0.95
GRAPHS = ("detour", "key_and_door", "random_graph", "sokoban")


def findings(seed: int = 0) -> list[Finding]:
    """All tests of this paper's claims."""
    settings = [(kind, LONG) for kind in ("detour", "recovery", "random_graph", "slip")] + [("random_graph", SHORT)]
    exact_tests = [test(kind, horizon, seed) for kind, horizon in settings for test in (closed_form, hindsight_kl)]
    graph_tests = [test(kind, seed) for kind in GRAPHS for test in (contraction, bounds, best_case)]
    return sorted(exact_tests + graph_tests, key=lambda finding: finding.claim)


# --- exact: the hindsight ratio ---------------------------------------------------------------------------------------


def _world(kind: str, horizon: int, seed: int) -> tuple[World, np.ndarray]:
    """A world and a policy q [states, actions] that succeeds half of the time, where it can."""
    world = make_world(kind, seed=seed)
    return world, sampling_policy(world, min(horizon, 40), 0.5, seed=seed)[0]


def _success(world: World, policy: np.ndarray, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """P(G | s) [states], 1 at goals, and P(G | s, a) [states, actions] with `horizon` steps to go."""
    value, action_value = np.zeros(world.states), np.zeros(policy.shape)
    for _ in range(horizon):
        action_value = exact.backup(world, value, 1.0)
        value = np.where(world.ended, 0.0, (policy * action_value).sum(-1))
    return np.where(world.goal, 1.0, value), action_value


def closed_form(kind: str, horizon: int, seed: int) -> Finding:
    """Proposition 4.1, by Bayes' rule from exact probabilities against the ratio of potentials."""
    world, policy = _world(kind, horizon, seed)
    value, action_value = _success(world, policy, horizon)
    phi, _ = _success(world, policy, LONG)
    going = ~world.ended & (value > EXACT)
    taken = (policy[:, :, None] * world.chance > 0) & going[:, None, None]
    hindsight = action_value / np.where(value > EXACT, value, 1.0)[:, None]
    ratio = phi[world.target] / np.where(phi > EXACT, phi, 1.0)[:, None, None]
    gap = np.abs(hindsight[:, :, None] - ratio)[taken]
    return Finding(
        claim="GraphHCA Proposition 4.1",
        statement="the hindsight ratio h(a|s,G)/q(a|s) is Phi(s')/Phi(s)",
        condition="deterministic transitions; success depends on the state alone, not on the step",
        setting=_setting(kind, horizon),
        met=world.deterministic and horizon == LONG,
        numbers={"largest gap": float(gap.max()), "mean gap": float(gap.mean())},
        verdict=exactly(gap.max() < 1e-6),
    )


def hindsight_kl(kind: str, horizon: int, seed: int) -> Finding:
    """Proposition 4.3, first half: the expected credit of a state against the KL divergence."""
    world, policy = _world(kind, horizon, seed)
    value, action_value = _success(world, policy, horizon)
    phi, _ = _success(world, policy, LONG)
    psi = np.log(np.maximum(phi, FLOOR))
    credit = (world.chance * (psi[world.target] - psi[:, None, None])).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(action_value / value[:, None])  # log h/q
    on = policy > 0
    high = np.where(world.chance > 0, phi[world.target] >= FLOOR, True).all(-1)
    active = ~world.ended & (phi >= FLOOR) & np.where(on, high & (action_value > 0), True).all(-1)
    expected = np.where(on, policy * credit, 0.0).sum(-1)[active]
    divergence = -np.where(on, policy * np.where(on, log_ratio, 0.0), 0.0).sum(-1)[active]
    gap = np.abs(expected + divergence)
    return Finding(
        claim="GraphHCA Proposition 4.3",
        statement="the expected credit of a state is -KL(q || h), so at most 0",
        condition="as in 4.1, and the floor is not active at the state and its successors",
        setting=f"{_setting(kind, horizon)}, {int(active.sum())} states",
        met=world.deterministic and horizon == LONG and bool(active.any()),
        numbers={
            "largest gap": float(gap.max(initial=0.0)),
            "largest expected credit": float(expected.max(initial=-np.inf)) if active.any() else 0.0,
        },
        verdict=exactly(bool(gap.max(initial=0.0) < 1e-6 and expected.max(initial=-1.0) <= EXACT)),
    )


def _setting(kind: str, horizon: int) -> str:
    return f"{kind}, {'no horizon' if horizon == LONG else f'horizon {horizon}'}, exact"


# --- empirical graphs -------------------------------------------------------------------------------------------------


def _graph(kind: str, seed: int) -> TrajectoryGraph:
    return TrajectoryGraph.dedicated(encode(draw(Case(kind, 8, SHORT, seed=seed)).batch))


def contraction(kind: str, seed: int) -> Finding:
    """Proposition 4.2: the operator applied to random functions, and iterated to its fixed point."""
    graph = _graph(kind, seed)
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, graph.nodes))
    first, second = (np.where(graph.is_sink, graph.sink_value, f) for f in (first, second))
    factor = 0.0
    for _ in range(100):
        before = np.abs(first - second).max()
        first, second = _operator(graph, first), _operator(graph, second)
        factor = max(factor, float(np.abs(first - second).max() / before)) if before > EXACT else factor
    for _ in range(500):
        first = _operator(graph, first)
    off = float(np.abs(first - graph.solve(GAMMA))[graph.out_count > 0].max())
    return Finding(
        claim="GraphHCA Proposition 4.2",
        statement="the graph operator contracts by gamma in the largest norm, cycles or not, and iteration ends in its "
        "one fixed point",
        condition="",
        setting=f"{kind}, graphs of {_groups(kind, seed)} groups",
        met=None,
        numbers={"largest factor": factor, "gamma": GAMMA, "iterated less solved": off},
        verdict=exactly(factor <= GAMMA + EXACT and off < EXACT),
    )


def _operator(graph: TrajectoryGraph, value: np.ndarray) -> np.ndarray:
    """`gamma E[value(s')]` over raw transitions; sinks keep their value."""
    total = np.bincount(graph.source, weights=value[graph.target], minlength=graph.nodes)
    inner = GAMMA * total / np.maximum(graph.out_count, 1)
    return np.where(graph.is_sink, graph.sink_value, inner)


def bounds(kind: str, seed: int) -> Finding:
    """Proposition 4.3, second half: bounds of the empirical potential and credit."""
    graph, options = _graph(kind, seed), GraphHCAOptions(gamma=GAMMA, floor=FLOOR)
    phi = potential(graph, options)[graph.out_count > 0]
    largest = float(np.abs(step_credit(graph, options)).max())
    good = phi.min() >= 0 and phi.max() <= GAMMA + EXACT and largest <= np.log(1 / FLOOR) + EXACT
    return Finding(
        claim="GraphHCA Proposition 4.3",
        statement="on the empirical graph Phi lies in [0, gamma] and a credit is at most log(1/floor) in size",
        condition="",
        setting=f"{kind}, graphs of {_groups(kind, seed)} groups",
        met=None,
        numbers={
            "largest Phi": float(phi.max()),
            "largest |credit|": largest,
            "log(1/floor)": float(np.log(1 / FLOOR)),
        },
        verdict=exactly(bool(good)),
    )


def best_case(kind: str, seed: int) -> Finding:
    """Proposition 4.4: expectation against maximum, and when they are equal."""
    graph = _graph(kind, seed)
    phi = graph.solve(GAMMA)
    best = graph.solve_power(GAMMA, np.inf)
    reached = np.isfinite(graph.distance) & ~graph.is_sink
    equal = np.abs(phi - best) < 1e-10
    straight = _only_best(graph)
    return Finding(
        claim="GraphHCA Proposition 4.4",
        statement="Phi is at most gamma^d, GraphGPO's score, and equal just where all transitions downstream go the "
        "shortest way",
        condition="unit costs; the goal can be reached",
        setting=f"{kind}, graphs of {_groups(kind, seed)} groups",
        met=True,
        numbers={
            "largest Phi - gamma^d": float((phi - best)[reached].max()),
            "nodes": int(reached.sum()),
            "equal": int((equal & reached).sum()),
            "equal or straight, not both": int(((equal != straight) & reached).sum()),
            **_told_apart(graph, phi),
        },
        verdict=exactly(bool((phi - best)[reached].max() <= EXACT and np.all((equal == straight)[reached]))),
    )


def _only_best(graph: TrajectoryGraph) -> np.ndarray:
    """[nodes] bool: each transition goes to a node nearer to the goal, here and downstream."""
    edges, distance = graph.edges, graph.distance
    straight = distance == 0
    nearer = distance[edges.target] + 1 == distance[edges.source]
    for _ in range(int(distance[np.isfinite(distance)].max())):
        bad = ~(nearer & straight[edges.target])
        worst = np.bincount(edges.source, weights=bad, minlength=graph.nodes)
        straight = (distance == 0) | (np.isfinite(distance) & (worst == 0) & (graph.out_count > 0))
    return straight


def _told_apart(graph: TrajectoryGraph, phi: np.ndarray) -> dict[str, float]:
    """Share of neighboring successors of one node, equally far from the goal, whose Phi differs; {} without any."""
    edges = graph.edges
    order = np.lexsort((graph.distance[edges.target], edges.source))
    source, target = edges.source[order], edges.target[order]
    distance = graph.distance[target]
    pair = (source[1:] == source[:-1]) & (distance[1:] == distance[:-1]) & np.isfinite(distance[1:])
    differ = np.abs(phi[target][1:] - phi[target][:-1]) > 1e-10
    return {"equidistant siblings told apart": float(np.mean(differ[pair]))} if pair.any() else {}


def _groups(kind: str, seed: int) -> int:
    return Case(kind, 8, SHORT, seed=seed).groups
