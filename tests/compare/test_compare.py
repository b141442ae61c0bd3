"""The comparison: measures by hand, plain loops for graph statistics, tables, and the command line."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from algorithms import OptionError, RolloutBatch, RolloutError, estimators
from algorithms.benchmark import synthetic_columns
from algorithms.states import encode
from analysis import compare_benchmark, compare_report
from analysis.compare import compare, decisive_rows, rank_correlation, sign_agreement, step_view
from analysis.group_statistics import group_statistics
from sweeps import cli

QUICK = settings(max_examples=25, deadline=None, derandomize=True)


def walk(trajectory, states, success, group="g", actions=None):
    steps = len(states) - 1
    return [
        {
            "group": group, "trajectory": trajectory, "step": t, "state": states[t],
            "action": actions[t] if actions else f"to {states[t + 1]}", "next_state": states[t + 1],
            "valid": True, "reward": 10.0 * (success and t == steps - 1), "success": success,
        }
        for t in range(steps)
    ]  # fmt: skip


def batch_of(rows):
    return RolloutBatch.from_columns(success_reward=10.0, **{key: [r[key] for r in rows] for key in rows[0]})


def random_rows(seed, groups=3):
    rng = np.random.default_rng(seed)
    rows = []
    for group in range(groups):
        for trajectory in range(int(rng.integers(1, 7))):
            states = [f"s{s}" for s in rng.integers(0, 6, int(rng.integers(2, 8)))]
            rows += walk(f"t{trajectory}", states, bool(rng.random() < 0.5), f"g{group}")
    return rows


# a: both to b. b: won goes to c and solves, lost goes to d. c only in won.
FORK = [*walk("won", "abce", True), *walk("lost", "abd", False)]


class TestMeasures:
    comparison = compare(batch_of(FORK), ["grpo", "rtmc"])

    def test_a_step_is_decisive_where_actions_differ_in_success(self):
        assert self.comparison.decisive.tolist() == [False, True, False, False, True]

    def test_several_actions_of_equal_success_are_not_decisive(self):
        rows = walk(0, "ab", True) + walk(1, "ac", True) + walk(2, "pq", False)
        assert not decisive_rows(encode(batch_of(rows))).any()

    def test_credit_of_grpo_by_hand(self):
        grpo = self.comparison.credits[0]
        half = 1 / np.sqrt(2)
        assert grpo.mean == pytest.approx(half / 5, abs=1e-5)
        assert grpo.std == pytest.approx(np.std([half] * 3 + [-half] * 2), abs=1e-5)
        assert (grpo.zero, grpo.positive_in_failed, grpo.negative_in_solved) == (0.0, 0.0, 0.0)
        assert grpo.decisive == pytest.approx(2 / 5)

    def test_rtmc_gives_all_its_credit_to_the_decisive_steps(self):
        rtmc = self.comparison.credits[1]
        assert rtmc.zero == pytest.approx(3 / 5)
        assert rtmc.decisive == pytest.approx(1.0)

    def test_positive_and_negative_shares_count_rows(self):
        rows = (
            walk(0, "aabz", True, actions="xyz")
            + walk(1, "abq", False, actions="yq")
            + walk(2, "aq", False, actions="q")
        )
        result = compare(batch_of(rows), ["rtmc"])
        values, solved = result.advantages[0], batch_of(rows).column("success")
        credit = result.credits[0]
        assert credit.positive_in_failed == pytest.approx(np.mean(values[~solved] > 1e-12))
        assert credit.negative_in_solved == pytest.approx(np.mean(values[solved] < -1e-12))
        assert 0 < credit.positive_in_failed < 1

    def test_what_there_is_not_is_none(self):
        credit = compare(batch_of(walk(0, "ab", True)), ["grpo"]).credits[0]
        assert (credit.zero, credit.decisive, credit.positive_in_failed) == (1.0, None, None)
        assert credit.negative_in_solved == 0.0

    def test_options_make_variants_and_shared_ones_hold_for_all(self):
        result = compare(batch_of(random_rows(1)), ["graft", "graft:sinks=dedicated", "gigpo:step_weight=0", "grpo"])
        assert result.labels == ("graft", "graft:sinks=dedicated", "gigpo:step_weight=0", "grpo")
        np.testing.assert_array_equal(result.advantages[2], result.advantages[3])
        assert not np.array_equal(result.advantages[0], result.advantages[1])
        centered = compare(batch_of(FORK), ["grpo"], {"normalization": "mean"})
        assert centered.advantages[0].tolist() == pytest.approx([5, 5, 5, -5, -5])

    @pytest.mark.parametrize(
        ("chosen", "common", "message"),
        [
            (["grfat"], {}, "did you mean 'graft'"),
            (["graft:gae=1"], {}, "has no option 'gae'"),
            (["grpo", "grpo"], {}, "'grpo' is named twice"),
            ([], {}, "no estimator is named"),
            (None, {"gamma": 1}, "'gamma' is not shared by all"),
            (["grpo"], {"normalization": "x"}, "must be one of"),
        ],
    )
    def test_wrong_requests_are_one_clear_error(self, chosen, common, message):
        with pytest.raises(OptionError, match=message):
            compare(batch_of(FORK), chosen, common)


class TestPairs:
    def test_signs_are_compared_where_both_give_credit(self):
        values = np.array([[1.0, -1, 0, 2, 1e-15], [3.0, 1, 5, -0.1, 1], [0.0, 0, 1, 0, 0]])
        agreement = sign_agreement(values)
        assert agreement[0, 1] == pytest.approx(1 / 3)
        assert agreement[1, 2] == 1.0
        assert np.isnan(agreement[0, 2])
        np.testing.assert_array_equal(agreement, agreement.T)

    @QUICK
    @given(st.integers(0, 10**6))
    def test_rank_correlation_is_spearmans(self, seed):
        values = np.round(np.random.default_rng(seed).normal(size=(3, 30)), 1)  # with ties
        np.testing.assert_allclose(rank_correlation(values), spearmanr(values, axis=1).statistic, atol=1e-12)

    def test_constant_credit_has_no_rank(self):
        correlation = rank_correlation(np.array([[1.0, 1, 1], [1, 2, 3]]))
        assert np.isnan(correlation[0]).all()
        assert correlation[1, 1] == pytest.approx(1.0)


# --- graph statistics -------------------------------------------------------------------------------------------------


def slow_statistics(rows):
    """Per group, by plain loops and walks."""
    result = {}
    for name in {row["group"] for row in rows}:
        group = [row for row in rows if row["group"] == name]
        walks = defaultdict(list)
        for row in group:
            walks[row["trajectory"]].append(row)
        acted = {row["state"] for row in group}
        nodes = acted | {row["next_state"] for row in group}
        following, inner = defaultdict(set), defaultdict(set)
        ends = defaultdict(set)
        finals = defaultdict(set)
        for key, steps in walks.items():
            ends[steps[-1]["next_state"]].add(key)
            finals[steps[-1]["state"]].add(key)
            for row in steps:
                following[row["state"]].add(row["next_state"])
                if row is not steps[-1]:
                    inner[row["state"]].add(row["next_state"])

        def reached(start, edges, stops=(), found=None):
            found = set() if found is None else found
            if start not in found:
                found.add(start)
                for node in () if start in stops else edges[start]:
                    reached(node, edges, stops, found)
            return found

        def heard(node, told, edges, stops=()):
            return len(set().union(*(told.get(n, set()) for n in reached(node, edges, stops))))

        revisits = sum(
            row["state"] in {earlier["state"] for earlier in steps[:t]}
            for steps in walks.values()
            for t, row in enumerate(steps)
        )
        actions = {state: {row["action"] for row in group if row["state"] == state} for state in acted}
        cyclic = {n for n in nodes if any(n in reached(m, following) for m in following[n])}
        result[name] = {
            "trajectories": len(walks),
            "solved": sum(steps[0]["success"] for steps in walks.values()),
            "rows": len(group),
            "nodes": len(nodes),
            "merge_rate": 1 - len(acted) / len(group),
            "revisits": revisits / len(group),
            "branching": np.mean([len(tried) for tried in actions.values()]),
            "choice_states": np.mean([len(tried) > 1 for tried in actions.values()]),
            "cyclic_states": len(cyclic) / len(nodes),
            "group_size": len(group) / len(acted),
            "degree": np.mean([heard(row["state"], ends, following, set(ends)) for row in group]),
            "degree_dedicated": np.mean([heard(row["state"], finals, inner) for row in group]),
            "degree_visits": np.mean(
                [len({r["trajectory"] for r in group if r["state"] == row["state"]}) for row in group]
            ),
        }
    return result


class TestGroupStatistics:
    @QUICK
    @given(st.integers(0, 10**6))
    def test_plain_loops_agree(self, seed):
        rows = random_rows(seed)
        expected = slow_statistics(rows)
        frame = group_statistics(batch_of(rows)).groups.set_index("group")
        assert set(frame.index) == set(expected)
        for name, values in expected.items():
            assert frame.loc[name].to_dict() == pytest.approx(values), name

    @QUICK
    @given(st.integers(0, 10**6))
    def test_shared_sinks_hear_at_least_of_every_visitor(self, seed):
        overall = group_statistics(batch_of(random_rows(seed))).overall
        assert overall["degree_dedicated"] >= overall["degree_visits"] - 1e-12

    def test_overall_weighs_rows_and_states(self):
        rows = walk(0, "abc", True) + walk(0, "aaaab", False, group="h", actions="xxxy")
        statistics = group_statistics(batch_of(rows))
        assert statistics.overall["merge_rate"] == pytest.approx(3 / 6)
        assert statistics.overall["revisits"] == pytest.approx(3 / 6)
        assert statistics.overall["branching"] == pytest.approx((1 + 1 + 2) / 3)
        assert statistics.overall["nodes"] == 2.5
        assert statistics.cycles == 0.5
        assert statistics.shares["group_size"] == pytest.approx((2 / 6, 0, 4 / 6, 0, 0))

    def test_more_than_64_trajectories_are_all_heard(self):
        rows = [row for t in range(150) for row in walk(t, ["a", f"b{t}", "c"], t % 2 == 0)]
        overall = group_statistics(batch_of(rows)).overall
        assert overall["degree"] == pytest.approx(150)  # all end in c
        assert overall["degree_visits"] == pytest.approx((150 + 1) / 2)


# --- what is printed and written --------------------------------------------------------------------------------------


class TestReport:
    comparison = compare(batch_of(random_rows(3) + FORK))

    def test_the_record_is_strict_json_with_every_pair(self):
        record = json.loads(json.dumps(compare_report.record(self.comparison, "x"), allow_nan=False))
        assert [entry["label"] for entry in record["estimators"]] == list(estimators())
        assert len(record["sign_agreement"]) == len(record["rank_correlation"]) == len(estimators())
        assert {entry["group"] for entry in record["by_group"]} == {"g", "g0", "g1", "g2"}

    def test_tables_fit_the_terminal(self):
        text = compare_report.terminal(self.comparison, "x", 100)
        assert max(map(len, text.splitlines())) <= 100
        frame = step_view(self.comparison, "g")
        assert max(map(len, compare_report.steps_terminal(frame, self.comparison.labels).splitlines())) <= 100

    def test_steps_are_shown_in_order_with_marks(self):
        frame = step_view(self.comparison, "g")
        assert frame["trajectory"].tolist() == ["won"] * 3 + ["lost"] * 2
        assert frame["step"].tolist() == [0, 1, 2, 0, 1]
        text = compare_report.steps_terminal(frame, ("grpo",))
        assert "trajectory won (solved)\n" in text
        assert "  1 *  to c " in text

    def test_an_unknown_group_is_an_error(self):
        with pytest.raises(RolloutError, match="there is no group 'q'"):
            step_view(self.comparison, "q")

    def test_missing_values_have_a_reason(self):
        text = compare_report.markdown(compare(batch_of(walk(0, "ab", True)), ["grpo", "rloo"]), "x")
        assert "no failed trajectory" in text
        assert "no credit given at all" in text
        assert "no step gets credit from both" in text
        assert "nan" not in text


class TestCommands:
    @pytest.fixture
    def stored(self, tmp_path):
        path = tmp_path / "000001.parquet"
        batch_of(random_rows(5) + FORK).write_parquet(path)
        return path

    def test_compare_prints_and_writes(self, stored, tmp_path, capsys):
        out = tmp_path / "out"
        code = cli.main(
            ["compare", str(stored), "--estimators", "grpo,graft:gae_lambda=0", "--task", "g", "--out", str(out)]
        )
        printed = capsys.readouterr().out
        assert code == 0
        assert "graft:gae_lambda=0" in printed
        assert "trajectory lost (not solved)" in printed
        assert {path.name for path in out.iterdir()} == {
            "comparison.md", "comparison.json", "estimators.csv", "pairs.csv", "groups.csv", "steps.csv",
        }  # fmt: skip
        rows = list(csv.DictReader((out / "steps.csv").open()))
        assert [row["state"] for row in rows] == list("abcab")
        assert len(list(csv.DictReader((out / "pairs.csv").open()))) == 1

    def test_a_telling_task_and_one_trajectory(self, stored, capsys):
        assert cli.main(["compare", str(stored), "--estimators", "grpo", "--task", "auto"]) == 0
        assert "(solved)" in capsys.readouterr().out
        assert cli.main(["compare", str(stored), "--estimators", "grpo", "--task", "g", "--trajectory", "won"]) == 0
        assert "trajectory lost" not in capsys.readouterr().out

    def test_a_run_folder_gives_its_last_update(self, stored, tmp_path, capsys):
        folder = tmp_path / "run" / "attempts" / "0001" / "rollouts"
        folder.mkdir(parents=True)
        stored.rename(folder / "000002.parquet")
        batch_of(walk(0, "ab", True)).write_parquet(folder / "000001.parquet")
        assert cli.main(["compare", str(tmp_path / "run"), "--estimators", "grpo"]) == 0
        assert capsys.readouterr().out.startswith("000002.parquet: ")
        assert cli.main(["compare", str(tmp_path)]) == 2
        assert "a folder without attempts/*/rollouts/*.parquet" in capsys.readouterr().err

    def test_graph_writes_every_format_asked_for(self, stored, tmp_path, capsys):
        files = [tmp_path / f"a.{suffix}" for suffix in ("pdf", "svg", "png", "html", "json")]
        flags = [text for file in files for text in ("--out", str(file))]
        command = ["graph", str(stored), "--task", "g", "--estimator", "graft:sinks=dedicated", "--highlight", "won"]
        assert cli.main([*command, "--layout", "layered", *flags]) == 0
        assert all(file.stat().st_size > 500 for file in files)
        record = json.loads(files[-1].read_text())
        assert (record["estimator"], record["options"]) == ("graft", {"sinks": "dedicated"})

    @pytest.mark.parametrize(
        ("command", "message", "code"),
        [
            (["compare", "{}", "--estimators", "grfat"], "did you mean 'graft'", 2),
            (["compare", "{}", "--estimators", "grpo,grpo"], "'grpo' is named twice", 2),
            (["compare", "{}", "--set", "gamma=1"], "'gamma' is not shared", 2),
            (["compare", "{}", "--set", "state_matching=embedding"], "needs embed=", 2),
            (["graph", "{}", "--estimator", "gigpo:state_matching=embedding"], "needs embed=", 2),
            (["compare", "{}", "--set", "gamma"], "write KEY=VALUE", 2),
            (["compare", "{}", "--trajectory", "won"], "--trajectory goes with --task", 2),
            (["compare", "{}", "--task", "g", "--trajectory", "x"], "it holds won, lost", 2),
            (["compare", "{}", "--task", "nope"], "there is no group 'nope'", 1),
            (["compare", "{}x"], "No such file", 1),
            (["compare", "{}", "--columns", "group"], "write OURS=THEIRS", 2),
            (["graph", "{}", "--out", "a.gif"], "the suffix must be one of .pdf, .svg, .png, .html, .json", 2),
            (["graph", "{}", "--task", "g", "--highlight", "x"], "it holds won, lost", 2),
            (["graph", "{}", "--layout", "spring"], "must be one of auto, dot, layered", 2),
            (["graph", "{}", "--estimator", "graft:lambda=1"], "has no option 'lambda'", 2),
        ],
    )
    def test_wrong_arguments_are_one_line(self, stored, tmp_path, monkeypatch, capsys, command, message, code):
        monkeypatch.chdir(tmp_path)
        assert cli.main([part.format(stored) for part in command]) == code
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.count("\n") == 1
        assert [path.name for path in tmp_path.iterdir()] == [stored.name]


class TestBenchmark:
    def test_plain_loops_agree_with_the_comparison(self):
        columns = synthetic_columns(2, seed=3, state_length=60)
        batch = RolloutBatch.from_columns(success_reward=10.0, **columns)
        assert compare_benchmark.plain_degree(columns) == pytest.approx(group_statistics(batch).overall["degree"])
        assert compare_benchmark.plain_decisive(columns) == compare(batch, ["grpo"]).decisive.tolist()

    def test_the_command_prints_a_table_and_ratios(self, capsys):
        assert compare_benchmark.main(["--rows", "400", "--plain-rows", "400"]) == 0
        assert re.search(r"Plain loops, a row: \d+ x \(degree\), \d+ x \(decisive steps\)\.", capsys.readouterr().out)
