"""The graph operations at sizes the random batches don't reach: long chains, big groups, hubs, cycles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from batches import batch_of, episode
from slow_oracle import random_rows

from algorithms import walks
from algorithms.estimators.graft import td_residual
from algorithms.graph import TrajectoryGraph
from algorithms.states import encode
from algorithms.statistics import discounted_sum
from algorithms.walks import Field, discounted_means


def walked_slowly(graph, total, start, horizon, factor):
    """The look-ahead with Python sets, once for each query."""
    count = np.bincount(graph.source, minlength=graph.nodes)
    successors = [set() for _ in range(graph.nodes)]
    for u, v in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
        successors[u].add(v)
    result = []
    for node, levels in zip(start.tolist(), horizon.tolist(), strict=True):
        reached, value = {node}, 0.0
        for k in range(1, levels + 1):
            members = list(reached)
            if count[members].sum() == 0:
                break
            value += factor**k * math.fsum(total[members]) / count[members].sum()
            reached = set().union(*(successors[u] for u in members))
        result.append(value)
    return result


def field_of(encoded, rng, share=0.1):
    """A field with random totals at some nodes, as if they were unbalanced sinks."""
    graph = TrajectoryGraph.merged(encoded)
    total = np.where(rng.random(graph.nodes) < share, rng.normal(size=graph.nodes), 0.0) * (graph.out_count > 0)
    return graph, Field(graph.edges, encoded.node_group, graph.out_count, total)


SHAPES = {
    "few nodes, settled at once": {"states": 5, "horizon": 20, "groups": 3},
    "more than a word of nodes": {"states": 100, "horizon": 40, "groups": 4, "trajectories": 8},
    "hardly any overlap": {"states": 2000, "horizon": 30, "groups": 3, "trajectories": 8},
    "one-step episodes": {"states": 4, "horizon": 1, "groups": 5, "trajectories": 8},
}


@pytest.mark.parametrize("share", [0.02, 0.5])
@pytest.mark.parametrize("factor", [1.0, 0.95, 0.3])
@pytest.mark.parametrize("shape", SHAPES)
def test_walks_equal_sets(shape, factor, share):
    rng = np.random.default_rng(7)
    encoded = encode(batch_of(random_rows(rng, **SHAPES[shape])))
    graph, field = field_of(encoded, rng, share)
    horizon = encoded.layout.length - 1 - encoded.layout.step
    expected = walked_slowly(graph, field.total, graph.target, horizon, factor)
    np.testing.assert_allclose(discounted_means(field, graph.target, horizon, factor), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("chunk", [0, 4000])
@pytest.mark.parametrize("hubs", [1, 10**9])
def test_neither_chunks_nor_layers_change_the_result(monkeypatch, chunk, hubs):
    rng = np.random.default_rng(11)
    encoded = encode(batch_of(random_rows(rng, states=90, horizon=25, groups=12, trajectories=6)))
    graph, field = field_of(encoded, rng)
    horizon = encoded.layout.length - 1 - encoded.layout.step
    expected = discounted_means(field, graph.target, horizon, 0.9)
    monkeypatch.setattr(walks, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(walks, "HUB_NODES", hubs)
    np.testing.assert_allclose(discounted_means(field, graph.target, horizon, 0.9), expected, rtol=0, atol=1e-14)


def test_a_chunk_of_one_step_episodes_is_passed_over(monkeypatch):
    # Group "h" has a sink with a way out but no row that looks ahead.
    rows = episode(0, ["a", "b"], False) + episode(1, ["a", "b", "c"], True)
    rows += episode(0, ["a", "b"], False, group="h") + episode(1, ["b", "c"], True, group="h")
    encoded = encode(batch_of(rows))
    graph = TrajectoryGraph.merged(encoded)
    total = np.bincount(graph.source, minlength=graph.nodes).astype(float)
    field = Field(graph.edges, encoded.node_group, graph.out_count, total)
    monkeypatch.setattr(walks, "CHUNK_BYTES", 0)
    horizon = encoded.layout.length - 1 - encoded.layout.step
    np.testing.assert_allclose(discounted_means(field, graph.target, horizon, 0.5), [0, 0.5, 0, 0, 0])


@pytest.mark.parametrize("factor", [0.0, 1e-3, 0.5, 0.9405, 0.999])
def test_what_is_left_out_of_a_long_walk_is_negligible(factor):
    levels = walks._useful_levels(factor)
    assert factor ** (levels + 1) / (1 - factor) <= 1e-15
    assert levels < 60_000


def test_a_cycle_of_period_two_never_settles():
    rows = episode(0, ["a", "b"] * 10 + ["end"], True)
    encoded = encode(batch_of(rows))
    graph = TrajectoryGraph.merged(encoded)
    total = np.zeros(graph.nodes)
    total[graph.source[0]] = 6.0
    field = Field(graph.edges, encoded.node_group, graph.out_count, total)
    start, horizon = graph.source[:1], np.array([6])
    expected = walked_slowly(graph, total, start, horizon, 0.5)
    np.testing.assert_allclose(discounted_means(field, start, horizon, 0.5), expected)
    assert expected[0] > 0


def test_a_group_that_settles_is_walked_no_further(monkeypatch):
    moves = []
    move = walks._Moves.move
    monkeypatch.setattr(walks._Moves, "move", lambda self, reached: moves.append(1) or move(self, reached))
    encoded = encode(batch_of(episode(0, ["a", "a", "b", "a"] * 100 + ["end"], True)))
    graph = TrajectoryGraph.merged(encoded)
    total = np.where(graph.out_count > 0, 1.0, 0.0)
    field = Field(graph.edges, encoded.node_group, graph.out_count, total)
    start, horizon = graph.source[:2], np.array([399, 17])
    expected = walked_slowly(graph, total, start, horizon, 0.99)
    np.testing.assert_allclose(discounted_means(field, start, horizon, 0.99), expected, rtol=1e-12)
    assert len(moves) < 6


def test_distances_on_a_long_chain_with_a_shortcut():
    n = 5000
    rows = episode(0, [f"s{i}" for i in range(n + 1)], True) + episode(1, ["s0", f"s{n - 3}", "lost"], False)
    graph = TrajectoryGraph.dedicated(encode(batch_of(rows)))
    assert graph.distance[graph.source[0]] == 4
    assert graph.distance[graph.source[1]] == n - 1
    assert graph.distance[graph.source[n - 1]] == 1
    assert np.isinf(graph.distance[-1])


def test_merged_distances_stop_at_sinks():
    # The way from a to the win leads through b, where another trajectory ended: b keeps its value 0.
    rows = episode(0, ["a", "b"], False) + episode(1, ["a", "b", "won"], True)
    encoded = encode(batch_of(rows))
    graph = TrajectoryGraph.merged(encoded)
    a, b = encoded.state[1], encoded.state[2]
    assert np.isinf(graph.distance[a])
    assert np.isinf(graph.distance[b])
    assert graph.solve(1.0)[[a, b]].tolist() == [0.0, 0.0]


def test_values_on_a_long_ladder_of_loops():
    # V(i) = gamma/2 (V(i) + V(i+1)): each rung multiplies by r = gamma/(2 - gamma).
    n = 3000
    rows = episode(0, [f"s{i // 2}" for i in range(2 * n)] + ["won"], True)
    graph = TrajectoryGraph.dedicated(encode(batch_of(rows)))
    value = graph.solve(0.99)[graph.source[::2]]
    np.testing.assert_allclose(value, (0.99 / 1.01) ** np.arange(n, 0, -1), rtol=1e-10)


def test_a_node_that_reaches_no_sink_is_worth_nothing():
    # "b" is observed but never acted in or ended in: the next row acts in another key.
    rows = episode(0, ["a", "b", "won"], True)
    rows[1]["state"] = "other"
    graph = TrajectoryGraph.merged(encode(batch_of(rows)))
    assert graph.solve(0.9)[graph.source].tolist() == [0.0, 0.9]


def test_differences_of_rounding_size_are_zero():
    # Ways of equal length from each s to the next: no step is better than another.
    ways = [[name for k in range(9) for name in (f"s{k}", f"way {t} from {k}")] + ["won"] for t in range(7)]
    batch = batch_of([row for t, way in enumerate(ways) for row in episode(t, way, True)])
    graph = TrajectoryGraph.merged(encode(batch))
    value = graph.solve(0.97)
    assert np.any(0.97 * value[graph.target] != value[graph.source])  # else this would test nothing
    assert not td_residual(graph, 0.97).any()


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
def test_discounted_sums_equal_a_loop(gamma):
    rng = np.random.default_rng(1)
    lengths = [1, 2, 3, 64, 65, 7]
    values = rng.normal(size=sum(lengths))
    remaining = np.concatenate([np.arange(n)[::-1] for n in lengths])
    expected = np.zeros(len(values))
    for i in reversed(range(len(values))):
        expected[i] = values[i] + (gamma * expected[i + 1] if remaining[i] else 0.0)
    np.testing.assert_allclose(discounted_sum(values, remaining, gamma), expected, atol=1e-12)
