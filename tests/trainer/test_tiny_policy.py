"""The built-in policy: its menu, its scoring, its sampler, and what the warm start learns from."""

from __future__ import annotations

import json

import pytest
import torch
from corridor import Corridor
from test_gradients import MODEL, allowed_words, make_policy, reply_logps

from algorithms.behavior_cloning import warm_start
from algorithms.evaluation import sampler
from algorithms.policy import PolicyError, load_policy
from algorithms.tiny_model import FORBIDDEN
from benchmarks.base import Observation, StepView

COMMANDS = ("go left", "go right", "wait")
SETTINGS = MODEL | {
    "name": "tiny",
    "kind": "tiny",
    "decoding": "constrained",
    "warm_start": {
        "split": "train", "offset": 0, "tasks": 20, "runs": 1, "steps": 150, "batch_size": 16,
        "learning_rate": 0.004, "seed": 0,
    },
}  # fmt: skip


def view(admissible=COMMANDS):
    return StepView(Observation("you are in room 2 .", "reach room 5", admissible), 0, 6)


def batch(policy, prompts, replies):
    width = max(map(len, prompts))
    length = max(map(len, replies))
    ids = [[0] * (width - len(p)) + p + r + [0] * (length - len(r)) for p, r in zip(prompts, replies, strict=True)]
    seen = [
        [0] * (width - len(p)) + [1] * (len(p) + len(r)) + [0] * (length - len(r))
        for p, r in zip(prompts, replies, strict=True)
    ]
    ids, seen = torch.tensor(ids), torch.tensor(seen)
    labels = ids.masked_fill(seen == 0, -100)
    labels[:, :width] = -100
    return ids, seen, labels


def test_prompt_is_menu_then_compact_prompt():
    policy = make_policy()
    words = policy.tokenizer.convert_ids_to_tokens(policy.render(view()))
    expected = "<menu> go left <or> go right <or> wait <end> reach room 5 | | you are in room 2 . [act]"
    assert " ".join(words) == expected


def test_reading_a_reply():
    policy = make_policy()
    parsed = policy.read(policy.command_ids("go left"))
    assert (parsed.action, parsed.format_valid) == ("go left", True)
    assert not policy.read(policy.command_ids("go left")[:-1]).format_valid


def test_samples_are_admissible_and_score_as_they_were_sampled():
    policy, torch_seed = make_policy(), torch.manual_seed(1)
    assert torch_seed is not None
    menus = [COMMANDS, ("wait",), ("go left", "wait"), ("go right",)] * 8
    prompts = [policy.render(view(menu)) for menu in menus]
    replies, _ = sampler(policy, temperature=1.0, max_new_tokens=6)(prompts)
    for menu, reply in zip(menus, replies, strict=True):
        assert policy.read(reply).action in menu
    assert {policy.read(r).action for r in replies} == set(COMMANDS)
    ids, seen, labels = batch(policy, prompts, replies)
    out = policy.model(ids, attention_mask=seen, labels=labels)
    for i, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        mine = out.log_probs[i][labels[i, 1:] != -100]
        assert torch.allclose(mine, reply_logps(policy.model, prompt, reply), atol=1e-5)


def test_frequencies_follow_the_scored_probabilities():
    policy = make_policy()
    prompt = policy.render(view())
    torch.manual_seed(0)
    replies, _ = sampler(policy, temperature=0.7, max_new_tokens=6, rows_per_call=500)([prompt] * 4000)
    policy.model.scoring_temperature = 0.7
    options = [policy.command_ids(c) for c in COMMANDS]
    ids, seen, labels = batch(policy, [prompt] * 3, options)
    probabilities = policy.model(ids, attention_mask=seen, labels=labels).log_probs.sum(1).exp()
    assert float(probabilities.detach().sum()) == pytest.approx(1.0, abs=1e-5)
    for option, probability in zip(options, probabilities.tolist(), strict=True):
        assert sum(r == option for r in replies) / 4000 == pytest.approx(probability, abs=0.03)


def test_greedy_decoding_takes_the_likeliest_words():
    policy = make_policy()
    prompt = policy.render(view())
    (reply,), _ = sampler(policy, temperature=0, max_new_tokens=6)([prompt])
    for i in range(len(reply)):
        words = allowed_words(prompt, reply[:i], policy.model.config)
        scores = {w: float(reply_logps(policy.model, prompt, [*reply[:i], w])[-1]) for w in words}
        assert reply[i] == max(scores, key=scores.get)


def test_padding_and_neighbors_change_nothing():
    policy = make_policy()
    short, long = policy.render(view(("wait",))), policy.render(view())
    reply = policy.command_ids("wait")
    alone = policy.model(*batch(policy, [short], [reply])[:1], labels=batch(policy, [short], [reply])[2]).log_probs
    ids, seen, labels = batch(policy, [short, long], [reply, policy.command_ids("go right")])
    both = policy.model(ids, attention_mask=seen, labels=labels).log_probs
    assert torch.allclose(both[0][labels[0, 1:] != -100], alone[0][-len(reply) :], atol=1e-6)


def test_what_the_menu_lacks_is_impossible_and_gradients_reach_every_weight():
    policy = make_policy()
    ids, seen, labels = batch(policy, [policy.render(view(("wait", "go left")))], [policy.command_ids("go right")])
    out = policy.model(ids, attention_mask=seen, labels=labels)
    assert float(out.log_probs.min()) < FORBIDDEN / 2
    ids, seen, labels = batch(policy, [policy.render(view())], [policy.command_ids("go right")])
    policy.model(ids, attention_mask=seen, labels=labels).loss.backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in policy.model.parameters())


def test_logits_without_labels_agree_with_scoring():
    policy = make_policy()
    ids, seen, labels = batch(policy, [policy.render(view())], [policy.command_ids("go right")])
    scored = policy.model(ids, attention_mask=seen, labels=labels).log_probs
    logits = policy.model(ids, attention_mask=seen).logits.log_softmax(-1)[:, :-1]
    mine = logits.gather(2, ids[:, 1:, None])[..., 0]
    chosen = labels[:, 1:] != -100
    assert torch.allclose(mine[chosen], scored[chosen], atol=1e-5)


def test_a_menu_word_inside_a_free_reply_is_just_a_word():
    policy = make_policy(decoding="free")
    config = policy.model.config
    reply = [config.menu_token_id, config.end_token_id, 9, config.eos_token_id]
    ids, seen, labels = batch(policy, [policy.render(view())], [reply])
    scored = policy.model(ids, attention_mask=seen, labels=labels).log_probs[0, -len(reply) :]
    assert torch.allclose(scored, reply_logps(policy.model, policy.render(view()), reply), atol=1e-5)


def test_warm_start_learns_and_is_cached_and_reproducible(tmp_path):
    benchmark = Corridor()
    first = warm_start(SETTINGS, benchmark, {}, tmp_path / "a")
    again = warm_start(SETTINGS, benchmark, {}, tmp_path / "b")
    record = json.loads((first / "warm_start.json").read_text())
    assert record["loss"] < 0.05
    mine, theirs = (load_policy(SETTINGS, benchmark, folder=f).model.state_dict() for f in (first, again))
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    before = (first / "model.safetensors").stat().st_mtime_ns
    assert warm_start(SETTINGS, benchmark, {}, tmp_path / "a") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == before
    other = SETTINGS | {"warm_start": SETTINGS["warm_start"] | {"seed": 1}}
    assert warm_start(other, benchmark, {}, tmp_path / "a") != first
    assert warm_start(SETTINGS, benchmark, {"wasted": 0.5}, tmp_path / "a") != first


def test_a_folder_without_a_model_is_one_clear_error(tmp_path):
    with pytest.raises(PolicyError, match=r"cannot be loaded: .*model\.path"):
        load_policy({"kind": "hub", "name": "hub", "decoding": "free"}, Corridor(), folder=tmp_path)
