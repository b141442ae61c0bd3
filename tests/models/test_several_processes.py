"""A chat model on two processes: data parallel and sharded by FSDP, against a hand computation; launch settings."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from chat_corridor import differs, largest, make_policy, make_trainer, state
from test_loss_means import kl_gradients

from algorithms.trainer import checkpoints
from sweeps.jobspec import JobSpec
from sweeps.launch import CONFIGS, command

HERE = Path(__file__).parent


def accelerates(kind):
    """accelerate's reading of a launch command of ours."""
    program = command(Path("run"), JobSpec(gpus=2, launch=kind), {})
    first = program.index("accelerate.commands.launch") + 1
    return _validate_launch_command(launch_command_parser().parse_args(program[first:]))[0]


TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run_two(folder, *words, launcher=TORCHRUN, **environment):
    make_policy(folder / "model")
    command_line = [sys.executable, "-m", *launcher, str(HERE / "chat_processes.py"), str(folder), *words]
    paths = {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        command_line, env=os.environ | paths | environment, capture_output=True, text=True, timeout=240
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [
        json.loads((folder / f"rank{i}.json").read_text()) | torch.load(folder / f"rank{i}.pt") for i in range(2)
    ]  # fmt: skip


def fsdp_environment():
    """What accelerate's launcher makes of `fsdp.yaml`, in float32."""
    made = prepare_multi_gpu_env(accelerates("fsdp"))
    chosen = {k: v for k, v in made.items() if k.startswith("FSDP_") or k == "ACCELERATE_USE_FSDP"}
    return chosen | {"ACCELERATE_MIXED_PRECISION": "no"}


def one_step_by_hand(folder, ranks):
    model = make_policy(folder / "model").model
    before = state(model)
    gradients = kl_gradients(model, [rank["batch"] for rank in ranks], 0.1)
    return {name: before[name] - 0.3 * gradient for name, gradient in gradients.items()}


def test_accelerate_reads_the_launch_configurations():
    sharded = accelerates("fsdp")
    assert (sharded.use_fsdp, sharded.fsdp_version, sharded.mixed_precision, sharded.num_processes) == (
        True,
        2,
        "bf16",
        2,
    )
    deep = accelerates("deepspeed")
    assert (deep.use_deepspeed, int(deep.zero_stage), deep.mixed_precision) == (True, 2, "bf16")
    known = set(vars(sharded))
    for kind in ("fsdp", "deepspeed"):
        inner = yaml.safe_load((CONFIGS / f"{kind}.yaml").read_text())[f"{kind}_config"]
        assert set(inner) <= known  # a key that accelerate does not know would have no effect


def test_only_the_last_micro_batch_makes_a_step(tmp_path):
    """DeepSpeed makes its step within `backward`, wherever gradients are to be synchronized."""
    trainer = make_trainer(tmp_path / "run", make_policy(tmp_path / "model"), updates=1, rows_per_microbatch=9)
    synchronized, backward = [], trainer.accelerator.backward

    def watching(loss, **options):
        synchronized.append(trainer.accelerator.sync_gradients)
        return backward(loss, **options)

    trainer.accelerator.backward = watching
    trainer.train()
    assert len(synchronized) > 2
    assert synchronized == [False] * (len(synchronized) - 1) + [True]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_deepspeed_makes_the_step_of_one_process(tmp_path):
    settings = yaml.safe_load((CONFIGS / "deepspeed.yaml").read_text()) | {"mixed_precision": "no"}
    (tmp_path / "launch.yaml").write_text(yaml.safe_dump(settings))
    launcher = ["accelerate.commands.launch", "--config_file", str(tmp_path / "launch.yaml"), "--num_processes", "2"]
    ranks = run_two(tmp_path, "one", launcher=launcher, DS_ACCELERATOR="cpu")
    expected = one_step_by_hand(tmp_path, ranks)
    moved = differs(expected, state(make_policy(tmp_path / "model").model))
    assert moved > 1e-3
    assert all(differs(rank["weights"], expected) < 1e-4 * moved + 1e-6 for rank in ranks)


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    ranks = run_two(tmp_path, "one")
    expected = one_step_by_hand(tmp_path, ranks)
    before = state(make_policy(tmp_path / "model").model)
    moved = differs(expected, before)
    assert moved > 1e-3
    for rank in ranks:
        assert differs(rank["weights"], expected) < 1e-4 * moved + 1e-6


@pytest.mark.slow
def test_means_of_two_processes_are_over_both(tmp_path):
    ranks = run_two(tmp_path)
    assert not torch.equal(ranks[0]["batch"]["completion_ids"], ranks[1]["batch"]["completion_ids"])
    total = {name: sum(rank["sums"][name] for rank in ranks) for name in ranks[0]["sums"]}
    row = ranks[0]["logged"]
    assert row["entropy"] == pytest.approx(total["entropy"] / total["tokens"], rel=1e-4)
    assert row["kl"] == pytest.approx(total["kl"] / total["tokens"], rel=1e-3)
    assert row["clip_fraction/low"] == pytest.approx(total["low"] / total["counted"], abs=1e-6)
    assert row["clip_fraction/high"] == pytest.approx(total["high"] / total["counted"], abs=1e-6)


@pytest.mark.slow
def test_fsdp_makes_the_step_of_one_process(tmp_path):
    ranks = run_two(tmp_path, "one", "fsdp", **fsdp_environment())
    assert all(rank["sharded"] for rank in ranks)
    expected = one_step_by_hand(tmp_path, ranks)
    moved = differs(expected, state(make_policy(tmp_path / "model").model))
    assert differs(ranks[0]["weights"], expected) < 1e-4 * moved + 1e-6
    assert [len(rank["episodes"]) for rank in ranks] == [3, 2]
    (checkpoint,) = checkpoints(tmp_path / "run")
    again = state(make_policy(tmp_path / "model", checkpoint=checkpoint).model)
    assert differs(again, expected) < 1e-4 * moved + 1e-6


@pytest.mark.slow
def test_fsdp_with_adapters_equals_data_parallel_training(tmp_path):
    plain = run_two(tmp_path / "ddp", "one", "lora")
    sharded = run_two(tmp_path / "fsdp", "one", "lora", "fsdp", **fsdp_environment())
    assert all(rank["sharded"] for rank in sharded)
    ours, theirs = ({n: p for n, p in run[0]["weights"].items() if "lora" in n} for run in (sharded, plain))
    assert largest(p for n, p in theirs.items() if "lora_B" in n) > 1e-5
    assert differs(ours, theirs) < 1e-6
    assert [rank["episodes"] for rank in sharded] == [rank["episodes"] for rank in plain]
    (checkpoint,) = checkpoints(tmp_path / "fsdp" / "run")
    adapted = state(make_policy(tmp_path / "fsdp" / "model", checkpoint=checkpoint).model)
    assert differs({n: p for n, p in adapted.items() if "lora" in n}, theirs) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("lora",)])
def test_fsdp_resumes_bit_for_bit(tmp_path, words):
    first, _ = run_two(tmp_path, "fsdp", "resume", *words, **fsdp_environment())
    assert first["held"] > 0
    assert first["same"]
