"""Activations that are computed again change no gradient and no reply."""

from __future__ import annotations

import pytest
import torch
from chat_corridor import LORA, Weights, differs, largest, make_policy, make_trainer
from test_gradients import make_policy as tiny_policy


def gradients(tmp_path, policy, checkpointing, lora=None):
    seen = Weights()
    trainer = make_trainer(
        tmp_path / "run", policy, lora=lora, callbacks=[seen], updates=2, kl_coefficient=0.1, learning_rate=0.3,
        resources={"gradient_checkpointing": checkpointing},
    )  # fmt: skip
    passes = []  # of one part of a layer while gradients are wanted
    part = next(module for name, module in trainer.model.named_modules() if name.endswith("layers.0.mlp"))
    part.register_forward_pre_hook(lambda *_: passes.append(1) if torch.is_grad_enabled() else None)
    trainer.train()
    assert trainer.model.is_gradient_checkpointing == checkpointing
    return seen.gradients, len(passes)


@pytest.mark.parametrize("lora", [None, LORA])
def test_same_gradients_with_and_without(tmp_path, lora):
    plain, once = gradients(tmp_path, make_policy(tmp_path / "model"), False, lora)
    again, twice = gradients(tmp_path, make_policy(tmp_path / "model"), True, lora)
    for ours, theirs in zip(again, plain, strict=True):
        assert largest(theirs.values()) > 1e-4
        assert differs(ours, theirs) < 1e-6 * largest(theirs.values()) + 1e-9
    assert twice == 2 * once


def test_the_tiny_policy_has_it_too(tmp_path):
    tiny_policy().model.save_pretrained(tmp_path / "start")

    def policy():
        made = tiny_policy()
        made.model = type(made.model).from_pretrained(tmp_path / "start")
        return made

    plain, _ = gradients(tmp_path, policy(), False)
    again, _ = gradients(tmp_path, policy(), True)
    assert all(differs(a, b) < 1e-6 for a, b in zip(again, plain, strict=True))
