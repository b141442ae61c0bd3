"""Entropy, KL and clip fraction of an update against a hand computation, whatever the micro-batches are."""

from __future__ import annotations

import pytest
import torch
from chat_corridor import Weights, differs, largest, make_policy, make_trainer

EPS = 0.2


def watched(trainer):
    """Every batch that an update trains on, and the weights that each optimizer step starts from."""
    batches, weights, generate, step = [], [], trainer._generate_and_score_completions, trainer.training_step

    def stepping(model, inputs, num_items_in_batch=None):
        weights.append({n: p.detach().clone() for n, p in trainer.model.named_parameters()})
        return step(model, inputs, num_items_in_batch)

    trainer._generate_and_score_completions = lambda inputs: batches.append(generate(inputs)) or batches[-1]
    trainer.training_step = stepping
    return batches, weights


def by_hand(model, batch, weights, by_rows):
    """Sums over the rows of one batch: entropy, kl, tokens, clipped low and high, what clipping is counted in."""
    model.load_state_dict(weights, strict=False)
    sums = dict.fromkeys(("entropy", "kl", "tokens", "low", "high", "counted"), 0.0)
    for i in range(batch["advantages"].numel()):
        row = {k: v[i] for k, v in batch.items()}
        prompt = row["prompt_ids"][row["prompt_mask"] > 0]
        reply = row["completion_ids"][row["completion_mask"] > 0]
        with torch.no_grad():
            logits = model(input_ids=torch.cat([prompt, reply])[None]).logits[0, len(prompt) - 1 : -1]
        logps = logits.log_softmax(-1)
        mine = logps.gather(1, reply[:, None])[:, 0]
        gap = row["ref_per_token_logps"][: len(reply)] - mine
        ratio = mine - row["old_per_token_logps"][: len(reply)]
        ratio = ratio.mean()[None].exp() if by_rows else ratio.exp()
        advantage = float(row["advantages"])
        sums["entropy"] -= float((logps.exp() * logps).sum())
        sums["kl"] += float((gap.exp() - gap - 1).sum())
        sums["tokens"] += len(reply)
        sums["low"] += float((ratio < 1 - EPS).sum()) if advantage < 0 else 0.0
        sums["high"] += float((ratio > 1 + EPS).sum()) if advantage > 0 else 0.0
        sums["counted"] += ratio.numel()
    return sums


@pytest.mark.parametrize("goal", ["ppo", "grpo_c"])
@pytest.mark.parametrize("rows_per_microbatch", [5, 1000])
def test_means_equal_a_hand_computation(tmp_path, goal, rows_per_microbatch):
    policy = make_policy(tmp_path / "model")
    trainer = make_trainer(
        tmp_path / "run", policy, goal=goal, epochs=2, updates=1, kl_coefficient=0.1, learning_rate=5.0,
        rows_per_microbatch=rows_per_microbatch,
    )  # fmt: skip
    batches, weights = watched(trainer)
    trainer.train()
    twin = make_policy(tmp_path / "model").model
    steps = [by_hand(twin, batches[0], start, goal == "grpo_c") for start in weights]
    total = {name: sum(step[name] for step in steps) for name in steps[0]}
    (row,) = trainer.rows_logged
    assert row["entropy"] == pytest.approx(total["entropy"] / total["tokens"], rel=1e-4)
    assert row["kl"] == pytest.approx(total["kl"] / total["tokens"], rel=1e-3, abs=1e-6)
    assert row["clip_fraction/low"] == pytest.approx(total["low"] / total["counted"], abs=1e-6)
    assert row["clip_fraction/high"] == pytest.approx(total["high"] / total["counted"], abs=1e-6)
    assert row["clip_fraction"] == pytest.approx(row["clip_fraction/low"] + row["clip_fraction/high"])
    assert 0 < row["clip_fraction"] < 1
    assert row["kl"] > 0
    assert not [name for name in row if name.startswith("clip_ratio")]


def kl_gradients(model, batches, beta):
    """Of the token mean of the surrogate at ratio 1 plus beta (r - log r - 1), r = reference / policy."""
    tokens = sum(int(batch["completion_mask"].sum()) for batch in batches)
    for batch in batches:
        for i in range(batch["advantages"].numel()):
            row = {k: v[i] for k, v in batch.items()}
            prompt, reply = row["prompt_ids"][row["prompt_mask"] > 0], row["completion_ids"][row["completion_mask"] > 0]
            logits = model(input_ids=torch.cat([prompt, reply])[None]).logits[0, len(prompt) - 1 : -1]
            logps = logits.log_softmax(-1).gather(1, reply[:, None])[:, 0]
            gap = row["ref_per_token_logps"][: len(reply)] - logps
            surrogate = -float(row["advantages"]) * (logps - logps.detach()).exp()
            ((surrogate + beta * (gap.exp() - gap - 1)).sum() / tokens).backward()
    return {n: p.grad for n, p in model.named_parameters()}


def test_the_gradient_of_the_kl_term_is_that_of_the_published_loss(tmp_path):
    """Without an importance ratio in it."""
    policy, seen = make_policy(tmp_path / "model"), Weights()
    trainer = make_trainer(tmp_path / "run", policy, updates=2, kl_coefficient=0.5, learning_rate=0.3, callbacks=[seen])
    batches, _ = watched(trainer)
    trainer.train()
    twin = make_policy(tmp_path / "model").model
    twin.load_state_dict(seen.before[1])
    ours = kl_gradients(twin, batches[1:], 0.5)
    assert trainer.rows_logged[1]["kl"] > 1e-3
    assert differs(ours, seen.gradients[1]) < 1e-4 * largest(ours.values()) + 1e-7
