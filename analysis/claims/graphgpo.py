"""GraphGPO (Cheng et al. 2026, arXiv 2605.26684): Propositions 4.1 (monotonicity) and 4.2 (conditional variance)."""

from __future__ import annotations

import numpy as np

from algorithms import estimate
from algorithms.graph import TrajectoryGraph
from algorithms.states import encode
from analysis.claims.finding import Finding, at_most_zero, exactly
from analysis.faithfulness import Case, Sample, draw
from analysis.faithfulness_metrics import ZERO, bias_and_variance

WORLDS = 5
OMEGA = 0.8  # the paper's for Sokoban; 0.1 is ALFWorld's


def findings(seed: int = 0) -> list[Finding]:
    """All tests of this paper's claims."""
    kinds = ("detour", "recovery", "slip", "random_graph", "sokoban")
    return [
        *(
            monotone(kind, omega, penalty, seed)
            for kind in ("random_graph", "sokoban")
            for omega, penalty in ((OMEGA, 0.0), (0.1, 0.0), (0.1, 0.1))
        ),
        *(faithful_order(kind, seed) for kind in kinds),
        *(conditional_variance(kind, seed) for kind in kinds),
    ]


def _distances(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """[rows] node acted in, and distance of the next node (the largest of its group plus 1 where there is no way).

    Our rows are sorted by (group, trajectory, step), so they are in the order of the encoded batch.
    """
    batch = encode(sample.batch)
    graph = TrajectoryGraph.to_success(batch)
    distance = graph.distance
    group = np.append(batch.node_group, -1)
    finite = np.isfinite(distance)
    largest = np.zeros(batch.layout.groups)
    np.maximum.at(largest, batch.node_group[finite[:-1]], distance[:-1][finite[:-1]])
    filled = np.where(finite, distance, largest[group] + 1.0)
    return batch.state, filled[graph.target]


def monotone(kind: str, omega: float, penalty: float, seed: int) -> Finding:
    """Proposition 4.1: within a state, the nearer next state has the greater graph advantage."""
    sample = draw(Case(kind, 8, 15, invalid=0.2, seed=seed))
    credit = estimate(
        "graphgpo", sample.batch, omega=omega, episode_weight=0.0, invalid_action_penalty=penalty
    ).advantages
    state, distance = _distances(sample)
    pairs, wrong = _misordered(state, -distance, credit)
    return Finding(
        claim="GraphGPO Proposition 4.1",
        statement="within a state, a transition that shortens the distance more gets more graph advantage",
        condition="the step reward is the distance's alone (no penalty for invalid actions)",
        setting=f"{kind}, 20 % invalid actions, omega {omega:g}, penalty {penalty:g}",
        met=penalty == 0.0,
        numbers={"pairs": pairs, "in the wrong order": wrong / max(pairs, 1)},
        verdict=exactly(wrong == 0),
    )


def _misordered(state: np.ndarray, score: np.ndarray, credit: np.ndarray) -> tuple[int, int]:
    """(pairs, wrong): over rows of one state, neighbors by score whose scores differ, and those in which the greater
    score has no greater credit. Neighbors suffice: an order without a wrong neighbor has no wrong pair."""
    order = np.lexsort((credit, score, state))
    near = (state[order][1:] == state[order][:-1]) & (score[order][1:] > score[order][:-1])
    wrong = near & ~(credit[order][1:] > credit[order][:-1])
    return int(near.sum()), int(wrong.sum())


def faithful_order(kind: str, seed: int) -> Finding:
    """What monotonicity is worth: is the order by distance that of the exact advantages?"""
    pairs = against = 0
    for number in range(WORLDS):
        sample = draw(Case(kind, 32, 15, invalid=0.0, seed=seed + number))
        state, distance = _distances(sample)
        found = _contradicted(state, -distance, sample.truth.advantage)
        pairs, against = pairs + found[0], against + found[1]
    return Finding(
        claim="GraphGPO Proposition 4.1",
        statement="(our question) the order by distance within a state is the order of the exact advantages",
        condition="",
        setting=f"{kind}, N=32, {WORLDS} worlds",
        met=None,
        numbers={"pairs": pairs, "in the opposite order": against / max(pairs, 1)},
        verdict=exactly(against == 0),
    )


def _contradicted(state: np.ndarray, score: np.ndarray, advantage: np.ndarray) -> tuple[int, int]:
    """(pairs, opposite) over neighbors by score within a state whose scores and advantages both differ."""
    order = np.lexsort((advantage, score, state))
    near = (state[order][1:] == state[order][:-1]) & (score[order][1:] > score[order][:-1])
    gap = np.diff(advantage[order])
    return int((near & (np.abs(gap) > ZERO)).sum()), int((near & (gap < -ZERO)).sum())


def conditional_variance(kind: str, seed: int) -> Finding:
    """Proposition 4.2: variance of the step reward given (s, a), against that of the trajectory's outcome."""
    graph, outcome, difference = [], [], []
    for number in range(WORLDS):
        sample = draw(Case(kind, 8, 15, invalid=0.0, seed=seed + number))
        _, distance = _distances(sample)
        won = sample.steps.won[sample.steps.episode].astype(float)
        graph.append(bias_and_variance(sample.truth, OMEGA**distance, fit_scale=False)[1])
        outcome.append(bias_and_variance(sample.truth, won, fit_scale=False)[1])
        difference.append(graph[-1] - outcome[-1])
    return Finding(
        claim="GraphGPO Proposition 4.2",
        statement="given state and action, the graph step reward varies no more than the trajectory's outcome",
        condition="deterministic transitions",
        setting=f"{kind}, N=8, {WORLDS} worlds, over groups, omega {OMEGA}",
        met=sample.world.deterministic,
        numbers={"Var(graph reward | s, a)": float(np.mean(graph)), "Var(outcome | s, a)": float(np.mean(outcome))},
        verdict=at_most_zero([np.array(difference)])[0],
    )
