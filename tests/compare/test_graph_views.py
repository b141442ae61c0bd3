"""Graph views as data, their layout, and the pictures."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms import OptionError, RolloutBatch, RolloutError, estimate
from analysis.graph_layout import crossings, layered, layers, positions
from analysis.graphs import draw, graph_view, telling_group


def rows_of(trajectory, states, success, group="g", invalid=(), actions=None):
    steps = len(states) - 1
    return [
        {
            "group": group, "trajectory": trajectory, "step": t, "state": states[t],
            "action": actions[t] if actions else f"to {states[t + 1]}", "next_state": states[t + 1],
            "valid": t not in invalid, "reward": 10.0 * (success and t == steps - 1), "success": success,
        }
        for t in range(steps)
    ]  # fmt: skip


def batch_of(*episodes):
    rows = [row for episode in episodes for row in episode]
    return RolloutBatch.from_columns(success_reward=10.0, **{key: [row[key] for row in rows] for key in rows[0]})


FORK = batch_of(
    rows_of("won", "abcd", True),
    rows_of("lost", "abe", False, invalid=(1,)),
    rows_of("detour", "abbcd", True),
)


class TestView:
    view = graph_view(FORK, "g", "gigpo", layout="layered")

    def test_nodes_are_numbered_by_first_visit_and_count_visits(self):
        assert [node.text for node in self.view.nodes] == ["a", "b", "c", "e", "d"]
        assert [node.count for node in self.view.nodes] == [3, 4, 2, 1, 2]
        assert [node.kind for node in self.view.nodes] == ["start", "state", "state", "failure", "success"]

    def test_values_solve_the_graph_with_the_estimators_gamma(self):
        values = {node.text: node.value for node in self.view.nodes}
        g = 0.95
        b = g * (0.25 * 0 + 0.5 * g) / (1 - 0.25 * g)  # b: once to e, once to b, twice to c
        assert values == pytest.approx({"a": g * b, "b": b, "c": g, "d": 1.0, "e": 0.0})

    def test_edges_hold_the_mean_advantage_of_their_rows(self):
        advantages = estimate("gigpo", FORK).advantages
        names = [(row, t) for row, t in zip(FORK.column("trajectory"), FORK.column("step"), strict=True)]
        by_edge: dict[int, list[float]] = {}
        for row, (name, step) in enumerate(names):
            edge = self.view.trajectories[self.view.trajectory(name)][step]
            by_edge.setdefault(edge, []).append(advantages[row])
        assert sorted(by_edge) == list(range(len(self.view.edges)))
        for index, edge in enumerate(self.view.edges):
            assert edge.count == len(by_edge[index])
            assert edge.advantage == pytest.approx(np.mean(by_edge[index]))

    def test_an_edge_with_an_invalid_action_says_so(self):
        assert [(e.action, e.valid) for e in self.view.edges if not e.valid] == [("to e", False)]

    def test_a_trajectory_is_a_walk_along_its_edges(self):
        for name, path in zip(self.view.names, self.view.trajectories, strict=True):
            edges = [self.view.edges[i] for i in path]
            assert all(a.target == b.source for a, b in pairwise(edges))
            assert self.view.nodes[edges[0].source].text == "a", name
        assert dict(zip(self.view.names, self.view.success, strict=True)) == {
            "won": True, "lost": False, "detour": True,
        }  # fmt: skip

    def test_json_is_strict_and_complete(self):
        view = graph_view(FORK, "g", "graphhca", power=float("inf"))
        record = json.loads(json.dumps(view.to_json(), allow_nan=False))
        assert record["options"] == {"power": "inf"}
        assert len(record["nodes"]) == 5
        assert set(record["nodes"][0]) == {"id", "label", "text", "value", "count", "x", "y", "kind"}
        assert set(record["edges"][0]) == {"source", "target", "action", "advantage", "count", "valid"}
        assert record["trajectories"] == [list(path) for path in view.trajectories]

    def test_dedicated_sinks_are_nodes(self):
        view = graph_view(FORK, "g", "graft", sinks="dedicated")
        assert {"SUCCESS", "FAILURE"} <= {node.text for node in view.nodes}
        assert "e" not in {node.text for node in view.nodes}

    def test_one_row_is_a_graph(self):
        view = graph_view(batch_of(rows_of(0, "ab", False)), layout="layered")
        assert [(node.kind, node.x, node.y) for node in view.nodes] == [("start", 0, 0), ("failure", 1, 0)]

    def test_texts_that_begin_alike_have_labels_of_their_own(self):
        long = "the same long beginning of a text that goes on and on "
        view = graph_view(batch_of(rows_of(0, [long + "x", long + "y", "z"], True)))
        assert len({node.label for node in view.nodes}) == 3
        assert all(len(node.label) <= 50 for node in view.nodes)


class TestWhichGroup:
    batch = batch_of(
        rows_of(0, "abab", True, group=1), rows_of(1, "abab", True, group=1),
        rows_of(0, "ab", True, group=2), rows_of(1, "ac", False, group=2),
    )  # fmt: skip

    def test_the_telling_one_has_both_outcomes(self):
        assert telling_group(self.batch) == 2
        assert graph_view(self.batch).group == "2"

    def test_an_integer_id_may_be_given_as_text(self):
        assert graph_view(self.batch, "1").group == "1"

    def test_an_unknown_one_is_an_error_that_names_some(self):
        with pytest.raises(RolloutError, match=r"no group '7'; the first ones are 1, 2"):
            graph_view(self.batch, 7)

    def test_wrong_options_are_the_estimators_errors(self):
        with pytest.raises(OptionError, match="did you mean 'gae_lambda'"):
            graph_view(self.batch, 1, gae_lamda=1)

    def test_an_unknown_trajectory_names_what_there_is(self):
        with pytest.raises(KeyError, match="no trajectory '9' in group 1; it holds 0, 1"):
            graph_view(self.batch, 1).trajectory("9")


graphs = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
)


class TestLayout:
    @given(graphs)
    @settings(deadline=None, max_examples=60)
    def test_layers_are_distances_and_nodes_keep_their_gap(self, graph):
        nodes, edges = graph
        layer = layers(nodes, edges, [0])
        assert all(layer[t] <= layer[s] + 1 for s, t in edges if layer[s] > 0 or s == 0)
        place = layered(nodes, edges, [0])
        for depth in set(layer):
            y = np.sort(place[layer == depth, 1])
            assert np.all(np.diff(y) > 1 - 1e-9)
        np.testing.assert_array_equal(place[:, 0], layer)

    def test_a_crossing_that_need_not_be_is_removed(self):
        edges = [(0, 1), (0, 2), (1, 4), (2, 3)]
        assert crossings([[0], [1, 2], [3, 4]], [(1, 4), (2, 3)]) == 1
        y = layered(5, edges, [0])[:, 1]
        assert (y[1] - y[2]) * (y[4] - y[3]) > 0

    def test_a_chain_is_a_straight_line(self):
        np.testing.assert_allclose(layered(4, [(0, 1), (1, 2), (2, 3)], [0])[:, 1], 0.0)

    def test_another_layout_is_an_error(self):
        with pytest.raises(ValueError, match="must be one of auto, dot, layered"):
            positions(1, [], [0], "spring")

    def test_without_graphviz_dot_says_what_to_do_and_auto_goes_on(self, monkeypatch):
        monkeypatch.setenv("PATH", "")
        with pytest.raises(ValueError, match=r"needs graphviz's program dot .*use 'layered'"):
            positions(2, [(0, 1)], [0], "dot")
        np.testing.assert_array_equal(positions(2, [(0, 1)], [0]), [[0, 0], [1, 0]])

    def test_a_dot_program_is_asked_and_its_answer_used(self, tmp_path, monkeypatch):
        fake = tmp_path / "dot"
        fake.write_text(
            "#!/bin/sh\nread line; echo 'graph 1 2 2'; echo 'node 0 0.5 1 a b c d e f'; echo 'node 1 2 3 x'\n"
        )
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        np.testing.assert_array_equal(positions(2, [(0, 1)], [0]), [[0, 0], [1.5, 2]])

    @pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
    def test_graphviz_places_layers_from_left_to_right(self):
        place = positions(3, [(0, 1), (1, 2), (2, 0)], [0], "dot")
        assert np.all(np.diff(place[:, 0]) > 0.9)


class TestPictures:
    view = graph_view(FORK, layout="layered")

    @pytest.mark.parametrize(("suffix", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
    def test_each_format_is_written_the_same_every_time(self, tmp_path, suffix, start):
        first = draw(self.view, tmp_path / f"a.{suffix}", "lost").read_bytes()
        assert first.startswith(start)
        assert draw(self.view, tmp_path / f"b.{suffix}", "lost").read_bytes() == first
        assert {path.name for path in tmp_path.iterdir()} == {f"a.{suffix}", f"b.{suffix}"}

    def test_it_shows_actions_credit_values_and_the_highlighted_steps(self, tmp_path):
        text = draw(self.view, tmp_path / "a.svg", "detour").read_text()
        assert "to c" in text
        assert "step 1: " in text
        assert "V 1.00, 2 visits" in text
        assert "2 of 3 trajectories solved it; highlighted: trajectory detour (solved)" in text

    def test_highlighting_draws_one_casing_an_edge(self, tmp_path):
        plain = draw(self.view, tmp_path / "a.svg").read_text()
        marked = draw(self.view, tmp_path / "b.svg", "won").read_text()
        assert (plain.count("#ffc20a"), marked.count("#ffc20a")) == (0, 3)

    def test_odd_texts_are_drawn(self, tmp_path):
        odd = ["$x^2", "\x00\n\n", "日本語 💡", "", "$$\\frac{", "_" * 5000]
        batch = batch_of(rows_of("t$", odd, True, group="$g_", actions=["$", "", "\x07", "\\", "a" * 9999]))
        assert "SVG" in draw(graph_view(batch), tmp_path / "odd.svg", 0).read_text()[:400]

    def test_a_large_graph_is_drawn_in_bounds(self, tmp_path):
        rng = np.random.default_rng(1)
        episodes = [rows_of(k, [str(s) for s in rng.integers(0, 90, 40)], k % 2 == 0) for k in range(8)]
        view = graph_view(batch_of(*episodes), layout="layered")
        assert len(view.edges) > 250
        draw(view, tmp_path / "large.svg", 3)

    def test_another_suffix_is_an_error_and_nothing_is_written(self, tmp_path):
        with pytest.raises(ValueError, match=r"a\.gif: a picture is one of pdf, svg, png"):
            draw(self.view, tmp_path / "a.gif")
        assert list(tmp_path.iterdir()) == []
