"""A package that this repository has never heard of registers an estimator; the commands take it like any other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from algorithms import RolloutBatch

MODULE = """
import numpy as np
from dataclasses import dataclass
from algorithms.estimators.base import CommonOptions, Estimator, state_credit


@dataclass(frozen=True)
class Options(CommonOptions):
    scale: float = 1.0


def compute(batch, options):
    return state_credit(batch, options.scale * np.where(batch.success, 1.0, -1.0))


ESTIMATOR = Estimator("theirs", Options, compute)
"""


@pytest.fixture
def outside(tmp_path):
    """A folder laid out as pip leaves an installed package."""
    (tmp_path / "their_package.py").write_text(MODULE)
    record = tmp_path / "their_package-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text("[creditbench.estimators]\ntheirs = their_package:ESTIMATOR\n")
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "theirs.yaml").write_text("name: theirs\nobjective: ppo\noptions: {scale: 1.0}\n")
    columns = {
        "group": [0, 0], "trajectory": [0, 1], "step": [0, 0], "state": ["a", "a"], "action": ["x", "y"],
        "next_state": ["b", "c"], "valid": [True, True], "reward": [10.0, 0.0], "success": [True, False],
    }  # fmt: skip
    RolloutBatch.from_columns(success_reward=10.0, **columns).write_parquet(tmp_path / "rollouts.parquet")
    return tmp_path


def run(folder, *arguments):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-m", "sweeps.cli", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_take_it(outside):
    assert "theirs     scale=1.0" in run(outside, "estimators")
    file = str(outside / "rollouts.parquet")
    printed = run(outside, "compare", file, "--estimators", "grpo,theirs,theirs:scale=3", "--task", "0")
    assert "theirs:scale=3" in printed
    assert "+3.00" in printed
    picture = outside / "graph.svg"
    run(outside, "graph", file, "--estimator", "theirs", "--out", str(picture))
    assert "(theirs)" in picture.read_text()


def test_a_quick_start_may_name_it(outside):
    plan = run(outside, "quickstart", "--dry-run", "--methods", "theirs,salt", "--config-dir", str(outside),
               "--out", str(outside / "out"))  # fmt: skip
    assert "theirs" in plan
    assert "salt" in plan
