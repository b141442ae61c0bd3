"""Four updates equal two, a kill -9 and a resume: the same metrics and the same weights, by the real command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from sweeps.store import RunFolder

ROOT = Path(__file__).resolve().parents[2]
OVERRIDES = [
    "algorithm=graft", "protocol.updates=4", "protocol.checkpoint_every=2", "protocol.group_size=4",
    "protocol.tasks_per_update=2", "protocol.horizon=8", "protocol.learning_rate=0.003", "protocol.train.count=3",
    "protocol.evaluation.lists.training_games.count=2", "protocol.evaluation.lists.unseen_games.count=2",
    "model.warm_start.tasks=6", "model.warm_start.steps=12", "resources.keep_checkpoints=4",
]  # fmt: skip
NOT_COMPARED = ("timing/", "wall", "time", "_per_second")


def start(out):
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "sweeps.cli", "train", "--out", str(out), *OVERRIDES]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(out):
    process = start(out)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output[-3000:]
    return output


def the_run(out):
    (folder,) = (out / "runs").iterdir()
    return RunFolder.open(folder)


def kill_in_third_update(out):
    """kill -9 once the checkpoint of the second update is there and the third is on its way."""
    process = start(out)
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
        if list((out / "runs").glob("*/ckpt/checkpoint-4")):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    process.wait()
    assert process.returncode == -signal.SIGKILL


def comparable(rows):
    return [{k: v for k, v in row.items() if not any(word in k for word in NOT_COMPARED)} for row in rows]


def final_weights(run):
    return load_file(run.checkpoints / "checkpoint-8" / "model.safetensors")


def test_kill_and_resume_equals_an_uninterrupted_run(tmp_path):
    finish(tmp_path / "whole")
    kill_in_third_update(tmp_path / "killed")
    killed = the_run(tmp_path / "killed")
    assert killed.state() == "interrupted"
    assert [p.name for p in sorted(killed.checkpoints.glob("checkpoint-*"))] == ["checkpoint-4"]
    finish(tmp_path / "killed")
    whole = the_run(tmp_path / "whole")
    assert killed.state() == whole.state() == "done"
    assert len(killed.attempts()) == 2
    assert killed.id == whole.id
    assert [row["update"] for row in whole.metrics()] == [1, 2, 3, 4]
    assert comparable(killed.metrics()) == comparable(whole.metrics())
    mine, theirs = final_weights(killed), final_weights(whole)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert killed.evaluations() == whole.evaluations()
    walls = [row["wall"] for row in killed.metrics()]
    assert walls == sorted(walls)
    assert "done already" in finish(tmp_path / "killed")
