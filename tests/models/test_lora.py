"""LoRA: the gradient of a hand computation, frozen weights, checkpoints of adapters only, resume, reference."""

from __future__ import annotations

import pytest
import torch
from chat_corridor import LORA, Weights, differs, keep_rows, largest, make_policy, make_trainer, state, training_rows
from torch.func import functional_call

from algorithms.adapters import AdapterError, frozen_kept, is_adapter, lora_config
from algorithms.evaluation import sampler
from algorithms.trainer import checkpoints

SCALE = LORA["alpha"] / LORA["rank"]
PREFIX, PART_A, PART_B = "base_model.model.", ".lora_A.default.weight", ".lora_B.default.weight"


def adapted(base, adapters):
    """The weights W + scale B A of all matrices that have adapters, by the plain model's names."""
    weights = {}
    for name in [n for n in adapters if n.endswith(PART_A)]:
        stem = name.removesuffix(PART_A)
        key = f"{stem.removeprefix(PREFIX)}.weight"
        weights[key] = base[key] + SCALE * adapters[stem + PART_B] @ adapters[name]
    return weights


def by_hand(plain, adapters, rows):
    """Token mean of the surrogate at ratio 1, row by row: (gradients of the adapters, log-probabilities)."""
    leaves = {n: p.clone().requires_grad_() for n, p in adapters.items()}
    weights = adapted({n: p.detach() for n, p in plain.named_parameters()}, leaves)
    tokens, total, scores = sum(len(reply) for _, reply, _ in rows), 0.0, []
    for prompt, reply, advantage in rows:
        ids = torch.tensor([prompt + reply])
        logits = functional_call(plain, weights, (), {"input_ids": ids}).logits[0, len(prompt) - 1 : -1]
        logps = logits.log_softmax(-1).gather(1, torch.tensor(reply)[:, None])[:, 0]
        total = total - advantage * (logps - logps.detach()).exp().sum() / tokens
        scores.append(logps.detach())
    gradients = torch.autograd.grad(total, list(leaves.values()))
    return dict(zip(leaves, gradients, strict=True)), scores


def test_the_gradient_is_that_of_a_hand_computation(tmp_path):
    policy = make_policy(tmp_path / "model")
    seen = Weights()
    trainer = make_trainer(tmp_path / "run", policy, lora=LORA, callbacks=[seen], updates=2)
    kept = keep_rows(trainer)
    before = {n: p for n, p in state(trainer.model).items() if "lora" not in n}
    trainer.train()
    plain = make_policy(tmp_path / "model").model
    for update in range(2):
        adapters, theirs = seen.before[update], seen.gradients[update]
        assert set(adapters) == {n for n in adapters if PART_A in n or PART_B in n}
        ours, _ = by_hand(plain, adapters, training_rows(kept[update]))
        assert largest(ours.values()) > 1e-4
        assert differs(ours, theirs) < 1e-4 * largest(ours.values()) + 1e-7
    second = seen.gradients[1]
    assert largest(g for n, g in second.items() if PART_A in n) > 1e-5  # B is no longer zero
    assert all(torch.equal(p, state(trainer.model)[n]) for n, p in before.items())


def test_what_generates_and_is_evaluated_has_the_adapters(tmp_path):
    policy = make_policy(tmp_path / "model")
    trainer = make_trainer(tmp_path / "run", policy, lora=LORA, updates=2, learning_rate=3.0)
    trainer.train()
    assert policy.model is trainer.model
    prompt = policy.tokenizer("<user> reach room 3 | | you are in room 1 . [act] <agent>")["input_ids"]
    logits = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1]
    with policy.model.disable_adapter():
        plain = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1]
    assert largest([logits - plain]) > 1e-3
    replies, _ = sampler(policy, temperature=0, max_new_tokens=1)([prompt])
    assert replies == [[int(logits.argmax())]]


@pytest.mark.parametrize("lora", [LORA, LORA | {"dropout": 0.3}, None])
def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path, lora):
    def run(name, resume=None):
        policy = make_policy(tmp_path / "model")
        trainer = make_trainer(
            tmp_path / name, policy, lora=lora, updates=4, checkpoint_every=2, save=True, optimizer="adamw_torch",
            learning_rate=0.01, kl_coefficient=0.05,
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    whole = run("whole")
    second = checkpoints(tmp_path / "whole")[0]
    assert second.name == "checkpoint-2"
    resumed = run("resumed", str(second))
    ours, theirs = state(resumed.model), state(whole.model)
    assert all(torch.equal(ours[n], theirs[n]) for n in theirs)
    clockless = [{k: v for k, v in row.items() if "timing" not in k and "per_second" not in k and k != "train_runtime"}
                 for row in whole.rows_logged[2:]]  # fmt: skip
    assert [{k: row[k] for k in clockless[0]} for row in resumed.rows_logged] == clockless


def test_a_checkpoint_holds_adapters_and_loads_on_top_of_the_model(tmp_path):
    policy = make_policy(tmp_path / "model")
    trainer = make_trainer(tmp_path / "run", policy, lora=LORA, updates=1, save=True, learning_rate=3.0)
    trainer.train()
    (folder,) = checkpoints(tmp_path / "run")
    assert is_adapter(folder)
    assert not (folder / "model.safetensors").exists()
    assert (folder / "adapter_model.safetensors").stat().st_size < (tmp_path / "model/model.safetensors").stat().st_size
    again = make_policy(tmp_path / "model", checkpoint=folder)
    ours, theirs = state(again.model), state(trainer.model)
    assert all(torch.equal(ours[n], theirs[n]) for n in theirs)
    assert not is_adapter(tmp_path / "model")


def test_kl_is_measured_to_the_model_without_adapters(tmp_path):
    policy = make_policy(tmp_path / "model")
    trainer = make_trainer(tmp_path / "run", policy, lora=LORA, updates=2, kl_coefficient=0.5, learning_rate=2.0)
    batches, generate = [], trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: batches.append(generate(inputs)) or batches[-1]
    trainer.train()
    assert trainer.ref_model is None
    first, second = (row["kl"] for row in trainer.rows_logged)
    assert first == pytest.approx(0, abs=1e-6)
    assert second > 1e-5
    plain, row = make_policy(tmp_path / "model").model, {k: v[0] for k, v in batches[1].items()}
    prompt = row["prompt_ids"][row["prompt_mask"] > 0].tolist()
    reply = row["completion_ids"][row["completion_mask"] > 0].tolist()
    logits = plain(input_ids=torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
    expected = logits.log_softmax(-1).gather(1, torch.tensor(reply)[:, None])[:, 0]
    assert torch.allclose(row["ref_per_token_logps"][: len(reply)], expected, atol=1e-5)


def test_the_first_adapters_depend_on_the_seed_alone(tmp_path):
    def first(noise):
        policy = make_policy(tmp_path / "model")
        torch.manual_seed(noise)
        return state(make_trainer(tmp_path / "run", policy, lora=LORA).model)

    ours, theirs = first(1), first(2)
    assert all(torch.equal(ours[n], theirs[n]) for n in theirs)
    assert all(float(p.abs().max()) == 0 for n, p in ours.items() if PART_B in n)


def test_dropout_is_off_where_replies_are_sampled_and_scored(tmp_path):
    policy = make_policy(tmp_path / "model")
    trainer = make_trainer(tmp_path / "run", policy, lora=LORA | {"dropout": 0.5}, epochs=2, updates=1)
    modes, score = [], trainer._get_per_token_logps_and_entropies

    def watching(model, *args, **kwargs):
        modes.append(model.training)
        return score(model, *args, **kwargs)

    trainer._get_per_token_logps_and_entropies = watching
    trainer.train()
    assert not modes[0]  # old log-probabilities
    assert modes[-1]


def test_modules_that_are_not_there_are_named(tmp_path):
    model = make_policy(tmp_path / "model").model
    with pytest.raises(AdapterError, match=r"no linear module 'query' \(there are down_proj, .*q_proj"):
        lora_config(model, LORA | {"target_modules": ["q_proj", "query"]})
    assert lora_config(model, LORA | {"target_modules": ["q_proj"]}).target_modules == {"q_proj"}


def test_adapters_are_float32_on_a_bfloat16_model(tmp_path):
    policy = make_policy(tmp_path / "model", dtype="bfloat16")
    model = make_trainer(tmp_path / "run", policy, lora=LORA).model
    kinds = {(p.requires_grad, p.dtype) for p in model.parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}


def test_full_training_moves_the_weights_of_a_bfloat16_model(tmp_path):
    """At the papers' learning rate bfloat16 numbers would round nearly every step away."""
    policy = make_policy(tmp_path / "model", dtype="bfloat16")
    assert policy.model.dtype == torch.bfloat16
    trainer = make_trainer(tmp_path / "run", policy, updates=1, learning_rate=1e-6, optimizer="adamw_torch")
    before = state(trainer.model)
    trainer.train()
    after = state(trainer.model)
    moved = sum(int((after[n] != p).sum()) for n, p in before.items()) / sum(p.numel() for p in before.values())
    assert moved > 0.3
    kept = sum(int((after[n].bfloat16() != p.bfloat16()).sum()) for n, p in before.items())
    assert kept / sum(p.numel() for p in before.values()) < 0.05


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_merging_for_the_sampler_leaves_frozen_weights_as_they_were(tmp_path, dtype):
    policy = make_policy(tmp_path / "model", dtype=dtype)
    trainer = make_trainer(tmp_path / "run", policy, lora=LORA, updates=1, learning_rate=3.0)
    trainer.train()
    model, before = trainer.model, state(trainer.model)

    def merge_and_back():
        model.merge_adapter()
        merged = state(model)
        model.unmerge_adapter()
        return merged

    with frozen_kept(model):
        merged = merge_and_back()
    assert any(not torch.equal(p, before[n]) for n, p in merged.items())
    assert all(torch.equal(p, before[n]) for n, p in state(model).items())
    merge_and_back()  # without it they are not
    assert any(not torch.equal(p, before[n]) for n, p in state(model).items())
