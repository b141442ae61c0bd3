"""The main path, with real training: the smoke grid through Slurm to the table, equal to the same grid run here."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_sandbox import ROOT, sandbox

from sweeps.store import RunFolder

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def slurm():
    yield from sandbox(27400)


def creditbench(slurm, *arguments) -> str:
    environment = {**os.environ, "SLURM_CONF": str(slurm.conf), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "sweeps.cli", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1400, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def table(slurm, out: Path) -> list[dict[str, str]]:
    """The grid's table, without what the clock decides."""
    rows = csv.DictReader(io.StringIO(creditbench(slurm, "table", "smoke", "--out", out, "--format", "csv")))
    return [{key: value for key, value in row.items() if not key.startswith("seconds")} for row in rows]


def training(run: RunFolder) -> list[dict]:
    clocks = ("timing", "wall", "time")
    return [{key: value for key, value in row.items() if not key.startswith(clocks)} for row in run.metrics()]


def test_the_smoke_grid_is_the_same_on_slurm_and_here(slurm, tmp_path):
    there, here = tmp_path / "slurm", tmp_path / "here"
    creditbench(slurm, "submit", "smoke", "--out", there, "--allow-dirty", "--concurrent", "2")
    said = creditbench(slurm, "status", "smoke", "--out", there, "--watch", "2")
    assert "smoke: 12 cells: 12 done" in said
    creditbench(slurm, "submit", "smoke", "--out", here, "--local", "2")
    runs = sorted(path.name for path in (there / "runs").iterdir())
    assert runs == sorted(path.name for path in (here / "runs").iterdir())
    assert len(runs) == 12
    for name in runs:
        mine, other = RunFolder(there / "runs" / name), RunFolder(here / "runs" / name)
        assert len(training(mine)) == 2
        assert training(mine) == training(other)
        assert mine.evaluations() == other.evaluations()
    rows = table(slurm, there)
    assert rows
    assert rows == table(slurm, here)
