"""G2PO (Wang et al. 2026, arXiv 2606.22995): the variance bounds of appendix B."""

from __future__ import annotations

import numpy as np

from algorithms.states import EncodedBatch, encode
from algorithms.statistics import pool_mean
from analysis.claims.finding import Finding, at_most_zero, equal_to
from analysis.faithfulness import Case, draw
from benchmarks.worlds import exact

KINDS = {"random_layers": 6, "recovery": 200, "random_graph": 200, "slip": 200}  # horizons that cut nothing off


def findings(seed: int = 0) -> list[Finding]:
    """All tests of this paper's claims (undiscounted, as in the appendix)."""
    return [finding for kind, horizon in KINDS.items() for finding in _of_world(kind, horizon, seed)]


def _of_world(kind: str, horizon: int, seed: int) -> list[Finding]:
    sample = draw(Case(kind, 8, horizon, invalid=0.0, seed=seed), penalty=0.0)
    batch = encode(sample.batch)
    by_state = exact.solve(sample.world, sample.policy, horizon).value[-1]
    revisits = _revisit_share(batch)
    value = pool_mean(batch.success.astype(float), batch.state, batch.nodes)
    count = np.bincount(batch.state, minlength=batch.nodes).astype(float)
    exact_rate = np.full(batch.nodes, np.nan)
    exact_rate[batch.state] = by_state[sample.steps.state]
    first = sample.success * (1 - sample.success)
    return [
        _mean_of_visits(kind, batch, value, count, exact_rate, revisits),
        *_edge_bounds(kind, batch, value, count, exact_rate, first, revisits),
    ]


def _revisit_share(batch: EncodedBatch) -> float:
    """Share of visits that are not the first of their trajectory to the state."""
    pairs = np.unique(batch.layout.trajectory * batch.nodes + batch.state)
    return 1.0 - len(pairs) / batch.layout.rows


def _mean_of_visits(
    kind: str, batch: EncodedBatch, value: np.ndarray, count: np.ndarray, rate: np.ndarray, revisits: float
) -> Finding:
    """B.1: the squared deviation of each node's value, over sigma^2/n: 1 on average if the bound is the variance."""
    spread = rate * (1 - rate)
    kept = np.flatnonzero((count > 0) & (spread > 1e-6))
    ratio = (value[kept] - rate[kept]) ** 2 * count[kept] / spread[kept]
    verdict, mean, half = equal_to(1.0, [_by_group(ratio, batch.node_group[kept])])
    return Finding(
        claim="G2PO appendix B.1",
        statement="the mean outcome over the n visits of a state has variance sigma^2/n",
        condition="outcomes of the visits are independent",
        setting=f"{kind}, N=8, {revisits:.0%} of visits are revisits",
        met=revisits == 0.0,
        numbers={"variance over sigma²/n": mean, "± 95 %": half},
        verdict=verdict,
    )


def _edge_bounds(
    kind: str,
    batch: EncodedBatch,
    value: np.ndarray,
    count: np.ndarray,
    rate: np.ndarray,
    first: float,
    revisits: float,
) -> list[Finding]:
    """B.2: the difference of two values along executed transitions between states that are acted in."""
    go_on = ~batch.layout.last
    u, v = batch.state[go_on], batch.next_state[go_on]
    group = batch.layout.group[go_on]
    off = (value[v] - rate[v]) - (value[u] - rate[u])
    bound = rate[v] * (1 - rate[v]) / count[v] + rate[u] * (1 - rate[u]) / count[u]
    both = (count[u] > 1) & (count[v] > 1)
    own, own_mean, own_half = at_most_zero([_by_group(off**2 - bound, group)])
    whole, whole_mean, whole_half = at_most_zero([_by_group(off[both] ** 2 - first, group[both])])
    setting = f"{kind}, N=8, {revisits:.0%} of visits are revisits"
    return [
        Finding(
            claim="G2PO appendix B.2",
            statement="the value difference along an edge varies at most sigma²/n + sigma²/n' (each state's own sigma)",
            condition="as in B.1; values at both ends are not negatively correlated",
            setting=setting,
            met=revisits == 0.0,
            numbers={"variance": float(np.mean(off**2)), "bound": float(np.mean(bound)), "excess": own_mean,
                     "± 95 %": own_half},
            verdict=own,
        ),
        Finding(
            claim="G2PO appendix B.2",
            statement="where both states are visited twice or more, it varies no more than the trajectory's outcome",
            condition="as in B.1",
            setting=setting,
            met=revisits == 0.0,
            numbers={"variance": float(np.mean(off[both] ** 2)), "Var(R)": first, "excess": whole_mean,
                     "± 95 %": whole_half},
            verdict=whole,
        ),
    ]  # fmt: skip


def _by_group(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Means of the groups that have values."""
    count = np.bincount(group)
    return (np.bincount(group, weights=values) / np.maximum(count, 1))[count > 0]
