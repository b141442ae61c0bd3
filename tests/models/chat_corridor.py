"""A chat model of a few thousand weights that walks the corridor of `tests/trainer`, and a trainer for it."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "trainer"))

from test_chat_model import CHAT, Talking, save_model
from test_gradients import PROTOCOL, RESOURCES, Capture, keep_rows, training_rows

from algorithms.collector import Collector
from algorithms.objectives import objective
from algorithms.policy import load_policy
from algorithms.trainer import AgentTrainer, CreditAssignment, Recorder
from algorithms.trl_settings import grpo_config

__all__ = ["CHAT", "LORA", "Capture", "Talking", "keep_rows", "make_policy", "make_trainer", "save_model",
           "training_rows"]  # fmt: skip
LORA = {"rank": 4, "alpha": 8.0, "dropout": 0.0, "target_modules": "all-linear"}


def make_policy(folder, checkpoint=None, **model):
    if not folder.exists():
        save_model(folder)
    return load_policy({**CHAT, **model}, Talking(), folder=checkpoint or folder, base=folder)


def make_trainer(folder, policy, *, goal="ppo", lora=None, save=False, resources=(), optimizer="sgd", world=1,
                 rows_per_microbatch=9, callbacks=(), **protocol):  # fmt: skip
    settings = {**PROTOCOL, **protocol}
    args = grpo_config(settings, RESOURCES | dict(resources), objective(goal), seed=3, folder=folder, world=world)
    args.optim = optimizer
    if not save:
        args.save_strategy = "no"
    collector = Collector(
        policy.benchmark, policy, policy.benchmark.pool(12), horizon=6, state_key="observation", history=2
    )
    rows = []
    trainer = AgentTrainer(
        collector=collector,
        tasks=policy.benchmark.task_set("train", 12),
        credit=CreditAssignment("gigpo", {"invalid_action_penalty": 0.1}),
        recorder=Recorder(rows.append),
        args=args,
        rows_per_microbatch=rows_per_microbatch,
        callbacks=list(callbacks),
        lora=lora,
    )
    trainer.rows_logged = rows
    return trainer


class Weights(Capture):
    """Also the weights that every optimizer step starts from."""

    def __init__(self):
        super().__init__()
        self.before = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.before.append({n: p.detach().clone() for n, p in trained.items()})
        self.gradients.append({n: p.grad.clone() for n, p in trained.items()})


def largest(tensors):
    return max(float(t.detach().abs().max()) for t in tensors)


def differs(a, b):
    assert a.keys() == b.keys()
    return max(float((a[n] - b[n]).abs().max()) for n in a)


def state(model):
    return {n: p.detach().clone() for n, p in model.named_parameters()}


torch.set_num_threads(1)
