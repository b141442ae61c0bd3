"""A run that is asked to stop writes a checkpoint, says so by its exit code, and goes on to the same end; also launched
in two processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweeps import jobspec, launch, stop
from sweeps.config import compose
from sweeps.store import RunFolder

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "algorithm=gigpo", "protocol.updates=3", "protocol.checkpoint_every=3", "protocol.group_size=4",
    "protocol.tasks_per_update=2", "protocol.horizon=8", "protocol.train.count=4", "resources.device=cpu",
    "protocol.evaluation.lists.training_games.count=3", "protocol.evaluation.lists.training_games.repeats=1",
    "protocol.evaluation.every=1", "~protocol.evaluation.lists.unseen_games", "model.warm_start.tasks=12",
    "model.warm_start.steps=30",
]  # fmt: skip


def start(run: RunFolder, command: list[str] | None = None, **environment: str) -> subprocess.Popen:
    command = command or [sys.executable, "-m", "sweeps.run", str(run.path)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stdout=-1, stderr=-2, text=True)


def finish(process: subprocess.Popen) -> tuple[int, str]:
    output, _ = process.communicate(timeout=200)
    return process.returncode, output


def learned(run: RunFolder) -> list[dict]:
    clocks = ("timing", "wall", "time")
    return [{key: value for key, value in row.items() if not key.startswith(clocks)} for row in run.metrics()]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> RunFolder:
    run = RunFolder.create(tmp_path_factory.mktemp("whole") / "runs", compose(SMALL))
    code, output = finish(start(run))
    assert code == 0, output
    return run


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["file", "SIGTERM", "SIGUSR1"])
def test_a_run_asked_to_stop_goes_on_to_the_same_end(tmp_path, uninterrupted, how):
    run = RunFolder.create(tmp_path / "runs", uninterrupted.config())
    request = tmp_path / "stop"
    if how == "file":
        request.touch()
    process = start(run, **{stop.VARIABLE: str(request)})
    if how != "file":
        while not run.metrics() and process.poll() is None:  # while it trains
            time.sleep(0.02)
        process.send_signal(signal.Signals[how])
    code, output = finish(process)
    if code:  # else it was done before it heard
        assert code == stop.REQUEUE, output
        assert "stopped on request" in output
        assert run.error() is None
        assert run.result() is None
        assert list(run.checkpoints.glob("checkpoint-*"))  # beyond those of the protocol
        request.unlink(missing_ok=True)
        code, output = finish(start(run))
    assert code == 0, output
    assert learned(run) == learned(uninterrupted)
    assert run.evaluations() == uninterrupted.evaluations()
    assert how != "file" or len(run.attempts()) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_train_one_run(tmp_path, uninterrupted):
    """Rank 0 writes, every episode is evaluated once, and the update is made from as many episodes as by one
    process."""
    run = RunFolder.create(tmp_path / "runs", uninterrupted.config())
    spec = jobspec.make({"processes": 2, "launch": "ddp"})
    code, output = finish(start(run, launch.command(run.path, spec, {})))
    assert code == 0, output
    assert len(run.attempts()) == 1
    assert [row["episodes"] for row in run.metrics()] == [row["episodes"] for row in uninterrupted.metrics()]
    _, rows = run.evaluations()["training_games/after"]
    _, expected = uninterrupted.evaluations()["training_games/after"]
    assert [(row["task"], row["repeat"]) for row in rows] == [(row["task"], row["repeat"]) for row in expected]
