"""Runs with adapters, by the command line: what they are called, their records, evaluating a checkpoint, resuming."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu"))

import benchmarks
from algorithms import RolloutBatch
from sweeps import extras
from sweeps.cli import main
from sweeps.config import ConfigError, compose, identity
from sweeps.store import RunFolder

CLOCKS = ("timing", "wall", "time", "per_second")
PRESET = ["model=qwen2.5_1.5b", "protocol=paper_alfworld"]


def test_a_rank_is_enough_and_all_ways_to_write_it_are_one_run():
    short, dotted = ["model.lora=16"], ["model.lora.rank=16"]
    ways = (short, dotted, ["model.lora={rank:16,alpha:32}"], [*dotted, "model.lora.dropout=0"])
    configs = [compose([*PRESET, *way]) for way in ways]
    assert configs[0]["model"]["lora"] == {
        "rank": 16, "alpha": 32.0, "dropout": 0.0, "target_modules": "all-linear",
    }  # fmt: skip
    assert len({identity(config) for config in configs}) == 1
    assert identity(compose([*PRESET, "model.lora=8"])) != identity(configs[0])


def test_without_adapters_a_run_is_called_what_it_was_before_there_were_any():
    config = compose(PRESET)
    before = {**config, "model": {key: value for key, value in config["model"].items() if key != "lora"}}
    assert identity(config) == identity(before)
    assert identity(compose([*PRESET, "model.lora=null"])) == identity(config)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.lora=0"], r"model\.lora \(a rank\) must be a whole number >= 1, got 0"),
        (["model.lora=4", "model.lora.dropout=0"], r"model\.lora has no rank; say model\.lora\.rank=N"),
        (["model.lora.rnk=4"], r"unknown key 'model\.lora\.rnk'; did you mean 'rank'"),
        (["model.lora.rank=4", "model.lora.alpha=-1"], r"model\.lora\.alpha must be a number > 0"),
        (["model.lora.rank=4", "model.lora.dropout=1"], r"model\.lora\.dropout must be a number >= 0 and <= 0\.9"),
        (["model.lora.rank=4", "model.lora.target_modules=q_proj"], r"must be all-linear or a list of module names"),
        (["model.lora.rank=4", "model.lora.target_modules=[]"], r"must be all-linear or a list of module names"),
        (["model=tiny", "model.lora=4"], r"unknown key 'model\.lora'"),
    ],
)
def test_bad_adapters_are_one_line(overrides, message):
    with pytest.raises(ConfigError, match=message) as caught:
        compose([*PRESET[1:], "model=qwen2.5_1.5b", *overrides])
    assert "\n" not in str(caught.value)


def test_missing_peft_is_one_line(monkeypatch):
    config = compose(["model=hub", "model.path=m", "model.lora=4", "benchmark=worlds"])
    monkeypatch.setattr(extras, "_installed", lambda module: module != "peft")
    with pytest.raises(ConfigError, match=r"peft not installed; get it with: pip install -e '\.\[peft\]'"):
        extras.require(config)
    extras.require({**config, "model": {**config["model"], "lora": None}})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from make_model import make

    folder = tmp_path_factory.mktemp("model") / "m"
    return make(folder, "small", benchmarks.load("worlds"))


def overrides(model, updates=4):
    return [
        "algorithm=graft", "benchmark=worlds", "model=hub", f"model.path={model}", "model.dtype=float32",
        "model.lora=4",
        f"protocol.updates={updates}", "protocol.checkpoint_every=2", "protocol.group_size=4",
        "protocol.tasks_per_update=2", "protocol.horizon=4", "protocol.max_response_tokens=6",
        "protocol.max_prompt_tokens=2048", "protocol.train.count=4", "protocol.evaluation.lists.training_games.count=2",
        "protocol.evaluation.lists.unseen_games.count=2", "resources.keep_checkpoints=4", "resources.device=cpu",
        "resources.save_rollouts=text",
    ]  # fmt: skip


def train(out, model):
    assert main(["train", "--out", str(out), *overrides(model)]) == 0
    (folder,) = (out / "runs").iterdir()
    return RunFolder.open(folder)


def adapters(run, step):
    from safetensors.torch import load_file

    return load_file(run.checkpoints / f"checkpoint-{step}" / "adapter_model.safetensors")


@pytest.mark.slow
def test_a_run_with_adapters_is_evaluated_and_resumed_exactly(tmp_path, model):
    run = train(tmp_path / "whole", model)
    assert [row["update"] for row in run.metrics()] == [1, 2, 3, 4]
    assert {"entropy", "clip_fraction", "truncated"} <= set(run.metrics()[0])
    steps = sorted(int(path.name.rpartition("-")[2]) for path in run.checkpoints.glob("checkpoint-*"))
    assert not list(run.checkpoints.glob("*/model.safetensors"))
    first, last = adapters(run, steps[0]), adapters(run, steps[-1])
    assert max(float((last[n] - first[n]).abs().max()) for n in last) > 0
    rollouts = RolloutBatch.read_parquet(sorted(run.path.glob("attempts/*/rollouts/*.parquet"))[0])
    assert 0 <= rollouts.column("truncated").mean() <= 1

    inside = run.evaluations()["unseen_games/after"][1]
    assert main(["evaluate", str(run.path)]) == 0
    assert run.evaluations()["unseen_games/after"][1] == inside
    assert all("truncated" in row for row in inside)

    resumed = train(tmp_path / "stopped", model) if stopped_after_two(tmp_path / "stopped", model) else None
    assert resumed is not None
    assert resumed.id == run.id
    ours, theirs = adapters(resumed, steps[-1]), last
    assert all(torch.equal(ours[n], theirs[n]) for n in theirs)
    assert comparable(resumed.metrics()) == comparable(run.metrics())


def stopped_after_two(out, model):
    """Ends a run with its second update's checkpoint, as a request to stop does."""
    from sweeps import run as running
    from sweeps.run import StopRequested

    folder = RunFolder.create(out / "runs", compose(overrides(model))).path
    original = running.stop.requested
    running.stop.requested = lambda: bool(list(folder.glob("ckpt/checkpoint-4")) or _second(folder))
    try:
        running.run_cell(folder)
    except StopRequested:
        return True
    finally:
        running.stop.requested = original
    return False


def _second(folder):
    return len(RunFolder.open(folder).metrics()) >= 2


def comparable(rows):
    return [{k: v for k, v in row.items() if not any(word in k for word in CLOCKS)} for row in rows]
