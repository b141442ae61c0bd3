"""Run on two gloo processes: updates of a chat model, and what each process saw.

    torchrun ... chat_processes.py FOLDER [one] [lora] [fsdp] [resume]

resume  whether a resumed run is the uninterrupted one, and no more
one     a single optimizer step of the token-level loss; otherwise two of the step-level one
fsdp    sharded by what `sweeps/conf/launch/fsdp.yaml` says, in the environment. accelerate has FSDP for accelerators
        only, so the processes are told that theirs is one
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from accelerate import state
from accelerate.utils import DistributedType
from chat_corridor import LORA, make_policy, make_trainer
from test_loss_means import by_hand, watched

from algorithms.evaluation import evaluate, sampler
from algorithms.generation import BatchEngine


def allow_fsdp_on_cpu():
    original, plugins = state.AcceleratorState.__init__, []

    def init(self, *arguments, fsdp_plugin=None, **options):
        original(self, *arguments, fsdp_plugin=fsdp_plugin, **options)
        if fsdp_plugin is not None:
            plugins.append(fsdp_plugin)
        if plugins:
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, plugins[0]

    state.AcceleratorState.__init__ = init


def evaluated(trainer, policy, rank):
    """Greedy episodes of this process's part of a list, with the model that was trained."""
    assert policy.model is trainer.model
    engine = BatchEngine(sampler(policy, temperature=0, max_new_tokens=4))
    return evaluate(
        trainer.collector, policy.benchmark.task_set("test", 5), engine, repeats=1, seed=1, slots=2, share=(rank, 2),
        any_active=trainer._any_active,
    )  # fmt: skip


def resumed(folder, lora):
    """How far three updates are from two, a checkpoint and one."""

    def run(name, checkpoint=None):
        trainer = make_trainer(
            folder / name, make_policy(folder / "model"), lora=lora, updates=3, save=True, optimizer="adamw_torch",
            learning_rate=0.01, kl_coefficient=0.1, world=2,
        )  # fmt: skip
        trainer.keep_checkpoints = 3
        trainer.train(resume_from_checkpoint=checkpoint)
        whole = trainer.accelerator.get_state_dict(trainer.model_wrapped)
        return trainer.accelerator.process_index, {name: weight.clone() for name, weight in whole.items()}

    rank, whole = run("whole")
    _, again = run("again", str(folder / "whole" / "checkpoint-2"))
    same = whole.keys() == again.keys() and all(torch.equal(whole[n], again[n]) for n in whole)
    (folder / f"rank{rank}.json").write_text(json.dumps({"same": same, "held": len(whole)}))
    torch.save({}, folder / f"rank{rank}.pt")


def main(folder, *words):
    if "fsdp" in words:
        allow_fsdp_on_cpu()
    lora = LORA if "lora" in words else None
    if "resume" in words:
        resumed(folder, lora)
        return
    steps = {"goal": "ppo", "epochs": 1} if "one" in words else {"goal": "grpo_c", "epochs": 2}
    policy = make_policy(folder / "model")
    trainer = make_trainer(
        folder / "run", policy, lora=lora, updates=1, kl_coefficient=0.1, learning_rate=0.3, rows_per_microbatch=7,
        world=2, save="fsdp" in words, **steps,
    )  # fmt: skip
    batches, weights = watched(trainer)
    trainer.train()
    rank = trainer.accelerator.process_index
    sharded = {type(p).__name__ for p in trainer.model.parameters()} == {"DTensor"}
    whole = trainer.accelerator.get_state_dict(trainer.model_wrapped)  # collective where weights are sharded
    record = {"sharded": sharded, "logged": trainer.rows_logged[0] if trainer.rows_logged else None}
    if "one" not in words and not sharded:
        twin = make_policy(folder / "model").model
        parts = [by_hand(twin, batches[0], start, by_rows=True) for start in weights]
        record["sums"] = {name: sum(part[name] for part in parts) for name in parts[0]}
    record["episodes"] = evaluated(trainer, policy, rank)
    (folder / f"rank{rank}.json").write_text(json.dumps(record))
    torch.save({"batch": batches[0], "weights": {n.removeprefix("module."): p for n, p in whole.items()}},
               folder / f"rank{rank}.pt")  # fmt: skip


main(Path(sys.argv[1]), *sys.argv[2:])
