"""Learning in known worlds, and the commands of this family as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis import claims, faithfulness, learning_report
from analysis.claims import graft
from analysis.worlds_learning import EXACT, Learned, Setting, _gradient, learn, plan, start_logits
from benchmarks.worlds import sampling
from benchmarks.worlds.catalog import make_world
from benchmarks.worlds.policy import softmax
from sweeps import cli

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = Setting("key_and_door", seeds=6, updates=12)


def creditbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    command = [sys.executable, "-m", "sweeps.cli", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=200, check=False)


class TestLearning:
    @pytest.mark.parametrize("method", [EXACT, "grpo", "graft"])
    def test_success_rises_from_the_start(self, method):
        learned = learn(method, SMALL)
        assert learned.success[0] == pytest.approx(np.full(6, 0.1), abs=1e-5)
        assert learned.success.shape == (len(SMALL.marks), 6)
        assert (learned.final > learned.success[0] + 0.05).all()

    def test_exact_advantages_learn_fastest(self):
        assert learn(EXACT, SMALL).area.mean() > learn("grpo", SMALL).area.mean()

    def test_equal_arguments_give_equal_curves(self):
        assert np.array_equal(learn("gigpo", SMALL).success, learn("gigpo", SMALL).success)

    def test_methods_start_alike_and_seeds_do_not(self):
        world = make_world("key_and_door")
        starts = start_logits(world, SMALL)
        assert np.array_equal(starts, start_logits(world, SMALL))
        assert not np.allclose(starts[0], starts[1])

    def test_the_gradient_is_that_of_a_plain_loop(self):
        world = make_world("recovery")
        rng = np.random.default_rng(0)
        policy = softmax(world, rng.normal(size=(3, *world.admissible.shape)))
        owner = np.repeat(np.arange(3), 4)
        steps = sampling.play(world, policy, owner, 10, rng)
        credit = rng.normal(size=steps.rows)
        expected = np.zeros_like(policy)
        for row in range(steps.rows):
            seed = owner[steps.episode[row]]
            one = -policy[seed, steps.state[row]].copy()
            one[steps.action[row]] += 1
            expected[seed, steps.state[row]] += credit[row] * one
        expected /= np.bincount(owner[steps.episode])[:, None, None]
        assert np.allclose(_gradient(policy, steps, owner, credit), expected)

    def test_a_plan_holds_the_reference_and_needs_two_seeds(self):
        assert [method for method, _ in plan(["grpo"], ["slip"], 2, 1, 0)] == ["grpo", EXACT]
        with pytest.raises(ValueError, match="2 seeds and 1 update"):
            plan(["grpo"], ["slip"], 1, 1, 0)


class TestSignificance:
    def result(self, method: str, level: float, seeds: int = 30) -> Learned:
        noise = np.random.default_rng(0).normal(scale=0.05, size=seeds)
        own = np.random.default_rng(len(method)).normal(scale=0.01, size=seeds)
        setting = Setting("slip", seeds=seeds, updates=6)
        return Learned(method, setting, np.stack([level * k / 2 + noise + own for k in range(3)]))

    def test_holms_adjustment_by_hand(self):
        assert learning_report.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
        assert learning_report.holm([0.9, 0.8]) == [1.0, 1.0]

    def test_paired_seeds_tell_small_differences(self):
        results = [self.result("a", 0.5), self.result("bb", 0.55), self.result(EXACT, 0.9)]
        (area, _) = learning_report.compare(results)
        assert (area.first, area.second) == ("a", "bb")
        assert area.p < 1e-4
        assert area.difference < 0
        grid = learning_report.table(results, "slip", [area])
        assert [line[0] for line in grid[1:]] == [EXACT, "bb", "a"]
        assert grid[2][3] == "a"
        assert grid[3][4] == "bb"

    def test_equal_methods_are_not_told_apart(self):
        results = [self.result("a", 0.5), Learned("b", self.result("a", 0.5).setting, self.result("a", 0.5).success)]
        assert {found.p for found in learning_report.compare(results)} == {1.0}

    def test_the_area_is_the_mean_over_updates(self):
        learned = Learned("a", Setting("slip", seeds=1, updates=6), np.array([[0.0], [0.5], [1.0]]))
        assert learned.area == pytest.approx([0.5])


class TestCommands:
    def test_faithfulness_writes_tables_figures_and_claims(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(faithfulness, "TRAJECTORIES", 480)
        monkeypatch.setattr(
            claims, "run", lambda seed, chosen: [*graft.proposition_1(seed), *graft.dedicated_sinks(seed)]
        )
        monkeypatch.chdir(tmp_path)
        assert cli.main(["faithfulness", "--estimators", "grpo,graft:sinks=dedicated", "--worlds", "1"]) == 0
        printed = capsys.readouterr().out
        assert "graft:sinks=dedicated" in printed
        assert "GRAFT Proposition 1" in printed
        check_faithfulness(tmp_path / "results" / "faithfulness")

    @pytest.mark.slow
    def test_faithfulness_as_it_comes(self, tmp_path):
        done = creditbench("faithfulness", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        check_faithfulness(tmp_path / "results" / "faithfulness")

    def test_learn_writes_curves_and_comparisons(self, tmp_path, monkeypatch):
        arguments = [
            "learn",
            "--estimators",
            "grpo,gigpo",
            "--worlds",
            "slip,recovery",
            "--seeds",
            "5",
            "--updates",
            "4",
        ]
        done = creditbench(*arguments, "--jobs", "2", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "all worlds" in done.stdout
        out = tmp_path / "results" / "learning"
        record = json.loads((out / "learning.json").read_text())
        assert len(record["runs"]) == 6
        assert len(record["comparisons"]) == 6  # one pair, two measures, two worlds and both together
        assert {path.name for path in out.iterdir()} == {
            "learning.json", "learning.md", "learning.png", "learning.pdf", "comparisons.csv"
        }  # fmt: skip
        monkeypatch.chdir(tmp_path)
        assert cli.main([*arguments, "--jobs", "1", "--out", "again"]) == 0
        assert (tmp_path / "again" / "learning.json").read_bytes() == (out / "learning.json").read_bytes()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("claims", "--estimators", "grppo"), "--estimators: there is no estimator 'grppo'"),
            (("claims", "--estimators", "grpo,grpo"), "--estimators: 'grpo' is named twice"),
            (("faithfulness", "--worlds", "0"), "--worlds must be a whole number >= 1"),
            (("faithfulness", "--seed", "-1"), "--seed must be a whole number >= 0"),
            (("learn", "--worlds", "sokobn"), "did you mean 'sokoban'"),
            (("learn", "--seeds", "1"), "--seeds must be a whole number >= 2"),
            (("learn", "--estimators", "graft:x=1"), "has no option 'x'"),
        ],
    )
    def test_wrong_usage_is_one_line_and_writes_nothing(self, arguments, message, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert cli.main(list(arguments)) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert list(tmp_path.iterdir()) == []


def check_faithfulness(out: Path) -> None:
    """All files, all axes, all group sizes."""
    texts = {"faithfulness.json", "faithfulness.csv", "faithfulness.md", "claims.json", "claims.md"}
    drawn = {f"{name}.{end}" for name in ("axes", "bias_variance", "worlds") for end in ("png", "pdf")}
    assert {path.name for path in out.iterdir()} == texts | drawn
    rows = json.loads((out / "faithfulness.json").read_text())["rows"]
    assert {row["axis"] for row in rows} == {"world", "N", "horizon", "aliasing", "invalid rate", "success rate"}
    assert {row["size"] for row in rows if row["axis"] == "N"} == {2, 4, 8, 16, 32, 64}
