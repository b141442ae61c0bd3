"""The quick start from plan to table, with runs that need no model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweeps import extras, quickstart
from sweeps.config import ConfigError
from sweeps.files import StoreError
from sweeps.quickstart import describe, execute, make_plan
from sweeps.store import RunFolder

SMALL = ["protocol.updates=3", "protocol.evaluation.lists.training_games.count=4", "benchmark.options.data=synth-small"]
LISTS = ["~protocol.evaluation.lists.unseen_games"]


@pytest.fixture(autouse=True)
def fake_runs(monkeypatch):
    monkeypatch.setattr(quickstart, "RUNNER", "fake_cells")
    monkeypatch.setattr(extras, "_installed", lambda module: True)


def small_plan(out: Path, methods=("grpo", "graft"), seeds: int = 1):
    return make_plan(out, methods, seeds, [*SMALL, *LISTS])


def wish(out: Path, **wishes: str) -> None:
    out.mkdir(exist_ok=True)
    (out / "wishes.json").write_text(json.dumps({key.replace("_", "-"): value for key, value in wishes.items()}))


# --- the plan


def test_the_default_plan_is_every_method_after_the_initial_policy(tmp_path):
    plan = make_plan(tmp_path, seeds=2)
    labels = [(cell.method, cell.seed) for cell in plan.cells]
    methods = ["grpo", "gigpo", "graphgpo", "g2po", "graphhca", "graft"]
    assert labels == [("initial", 1), *((method, seed) for seed in (1, 2) for method in methods)]
    assert len({cell.folder for cell in plan.cells}) == 13
    assert not list(tmp_path.iterdir())


def test_the_plan_in_words(tmp_path):
    text = describe(small_plan(tmp_path), jobs=2)
    assert "3 cells, 2 at a time: the initial policy, then 2 methods x 1 seed" in text
    assert "3 updates x 8 tasks x 8 trajectories = 192 episodes of at most 15 steps a cell, 384 in all" in text
    assert "training_games: train 1200 to 1203, 4 episodes each" in text
    assert text.count(" new") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["grop"]}, "--methods: 'grop' does not exist; did you mean 'grpo'?"),
        ({"methods": ["initial"]}, "--methods: 'initial' does not exist"),
        ({"methods": ["grpo", "grpo"]}, "names one method twice"),
        ({"seeds": 0}, "--seeds must be"),
        ({"overrides": ["seed=3"]}, "sets seed itself"),
        ({"overrides": ["algorithm=grpo"]}, "sets algorithm itself"),
        ({"overrides": ["algorithm.options.gamma=1"]}, "different knobs"),
    ],
)
def test_what_a_plan_refuses(tmp_path, arguments, message):
    with pytest.raises(ConfigError) as caught:
        make_plan(tmp_path, **arguments)
    assert message in str(caught.value)


# --- running


def test_a_comparison_from_nothing_and_again(tmp_path, capsys):
    out = tmp_path / "out"
    plan = small_plan(out)
    assert execute(plan, jobs=2) == 0
    shown = capsys.readouterr().out
    assert "graft seed 1: done in" in shown
    assert f"all in {out}" in shown
    written = {path.name for path in out.iterdir()}
    assert {
        "comparison.md",
        "comparison.csv",
        "comparison.json",
        "learning_curves.png",
        "learning_curves.pdf",
    } < written
    assert [cell["method"] for cell in json.loads((out / "plan.json").read_text())["cells"]] == [
        "initial",
        "grpo",
        "graft",
    ]
    assert json.loads((out / "comparison.json").read_text())["rows"][1]["method"] == "grpo"
    assert [cell.state for cell in plan.cells] == ["done"] * 3

    assert execute(plan, jobs=2) == 0
    assert "every cell is done already" in capsys.readouterr().out
    assert len((out / "prepared").read_text().split()) == 1
    assert all(len(RunFolder.open(cell.folder).attempts()) == 1 for cell in plan.cells)


def test_a_failed_and_a_killed_cell_are_told_and_made_up_for(tmp_path, capsys):
    out = tmp_path / "out"
    wish(out, grpo_1="crash", graft_1="die")
    plan = small_plan(out, ("grpo", "graft", "gigpo"))
    assert execute(plan, jobs=2) == 1
    shown = capsys.readouterr().out
    assert "grpo seed 1 failed: ArithmeticError: loss is not finite" in shown
    assert f"log: {plan.cells[1].folder / 'attempts' / '0001' / 'out.log'}" in shown
    assert "graft seed 1 failed: killed by SIGKILL" in shown
    assert [cell.state for cell in plan.cells] == ["done", "failed", "interrupted", "done"]

    wish(out)
    assert execute(plan, jobs=2) == 0
    assert [cell.state for cell in plan.cells] == ["done"] * 4
    assert [len(RunFolder.open(cell.folder).attempts()) for cell in plan.cells] == [1, 2, 2, 1]
    assert [row["update"] for row in RunFolder.open(plan.cells[2].folder).metrics()] == [0, 1, 2]


def test_without_a_warm_start_no_cell_runs(tmp_path, capsys):
    out = tmp_path / "out"
    wish(out, prepare="crash")
    plan = small_plan(out)
    assert execute(plan, jobs=2) == 1
    assert "warm start failed: RuntimeError: no warm start today" in capsys.readouterr().out
    assert {cell.state for cell in plan.cells} == {"new"}


def test_an_interrupt_keeps_what_is_done(tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    plan = small_plan(out)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(quickstart, "run_jobs", interrupted)
    assert execute(plan, jobs=2) == 130
    assert "run the same command again to go on" in capsys.readouterr().out
    assert not (out / "comparison.md").exists()


def test_a_cell_that_runs_elsewhere_stops_the_comparison(tmp_path):
    plan = small_plan(tmp_path)
    run = RunFolder.create(tmp_path / "runs", plan.cells[1].config)
    with run.start_attempt(), pytest.raises(StoreError, match=r"grpo seed 1 .* is running already in process"):
        execute(plan, jobs=1)


def test_a_missing_package_is_named_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(extras, "_installed", lambda module: module != "textworld")
    with pytest.raises(ConfigError, match=r"textworld not installed; get it with: pip install -e '\.\[alfworld\]'"):
        execute(small_plan(tmp_path), jobs=1)
    assert not list(tmp_path.iterdir())
