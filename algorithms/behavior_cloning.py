"""Where the tiny policy comes from: a fixed word-level vocabulary, random weights, then behavior cloning.

The warm start is a pure function of (model config, benchmark label and options, seed): counted in steps, never in
seconds, so that every method of a comparison starts from the same weights. It is made once and cached by content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from algorithms.building import build_once
from algorithms.demonstrations import Decision, Load, demonstrate, processes_for
from algorithms.policy import TinyPolicy
from algorithms.tiny_model import TinyPolicyConfig, TinyPolicyForCausalLM
from benchmarks.base import Benchmark, Task

# fixed ids 0..6, in this order; TinyPolicyConfig's defaults name them
_SPECIAL = ("<pad>", "<eos>", "<unk>", "<menu>", "<or>", "<end>", "[act]")

Progress = Callable[[str, int, int], None]  # (stage, done, of)
Pair = tuple[list[int], list[int]]  # prompt ids, reply ids


def _quiet(stage: str, done: int, of: int) -> None:
    return None


def build_tokenizer(lexicon: Sequence[str]) -> PreTrainedTokenizerFast:
    """One id per word: the special words, then the benchmark's lexicon in its own order."""
    words = [*_SPECIAL, *(w for w in lexicon if w not in _SPECIAL)]
    model = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    model.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def build_network(model: Mapping[str, Any], vocabulary: int, seed: int) -> TinyPolicyForCausalLM:
    """A tiny policy with random weights, the same for the same seed."""
    config = TinyPolicyConfig(
        vocab_size=vocabulary,
        hidden_size=model["hidden_size"],
        intermediate_size=model["intermediate_size"],
        num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"],
        num_key_value_heads=model["heads"],
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.05,
        pad_token_id=0,
        eos_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return TinyPolicyForCausalLM(config)


def _collate(pairs: Sequence[Pair], pad: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ids, attention mask and labels [batch, length], right padded; only replies are labeled."""
    length = max(len(p) + len(r) for p, r in pairs)
    ids = torch.full((len(pairs), length), pad)
    labels = torch.full((len(pairs), length), -100)
    mask = torch.zeros((len(pairs), length), dtype=torch.long)
    for row, (prompt, reply) in enumerate(pairs):
        end = len(prompt) + len(reply)
        ids[row, :end] = torch.tensor(prompt + reply)
        labels[row, len(prompt) : end] = torch.tensor(reply)
        mask[row, :end] = 1
    return ids, mask, labels


def clone(policy: TinyPolicy, pairs: Sequence[Pair], settings: Mapping[str, Any], progress: Progress = _quiet) -> float:
    """`settings["steps"]` AdamW steps with linearly falling learning rate on (prompt, reply) pairs, maximizing the
    log-probability of the replies under the policy's own (restricted) distribution. Returns the mean loss per token
    over the last tenth of the steps."""
    model, rng = policy.model, np.random.default_rng(settings["seed"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["learning_rate"], betas=(0.9, 0.95), weight_decay=0.0)
    model.train()
    order: list[int] = []
    losses = []
    for step in range(settings["steps"]):
        if len(order) < settings["batch_size"]:
            order += rng.permutation(len(pairs)).tolist()
        batch, order = order[: settings["batch_size"]], order[settings["batch_size"] :]
        ids, mask, labels = _collate([pairs[i] for i in batch], policy.tokenizer.pad_token_id)
        for group in optimizer.param_groups:
            group["lr"] = settings["learning_rate"] * (1 - step / settings["steps"])
        loss = model(ids, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        progress("behavior cloning", step + 1, settings["steps"])
    model.eval()
    return float(np.mean(losses[-max(1, len(losses) // 10) :]))


def warm_start_key(model: Mapping[str, Any], benchmark: Benchmark, options: Mapping[str, Any]) -> str:
    """16 hex digits over what decides the warm-started weights: model config, data, its options, vocabulary."""
    vocabulary = hashlib.sha256("\n".join(benchmark.lexicon()).encode()).hexdigest()
    record = json.dumps(
        [dict(model), benchmark.label, dict(options), vocabulary], sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(record.encode()).hexdigest()[:16]


def warm_start(
    model: Mapping[str, Any],
    benchmark: Benchmark,
    options: Mapping[str, Any],
    cache: Path,
    progress: Progress = _quiet,
    load: Load | None = None,
) -> Path:
    """The folder of the warm-started tiny policy; made when the cache does not hold it yet. `options` are those that
    the benchmark was loaded with: they may change what is demonstrated. With `load`, which makes an equal benchmark
    (picklable), demonstrations may be played in several processes; the weights are the same."""
    target = cache / f"tiny-{warm_start_key(model, benchmark, options)}"
    if target.is_dir():
        return target
    settings = model["warm_start"]

    def build(folder: Path) -> None:
        tokenizer = build_tokenizer(benchmark.lexicon())
        network = build_network(model, len(tokenizer), settings["seed"])
        policy = TinyPolicy(network, tokenizer, benchmark, model["decoding"])
        pairs = demonstrations(policy, settings, progress, load)
        loss = clone(policy, pairs, settings, progress)
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        record = {"label": benchmark.label, "pairs": len(pairs), "loss": loss, "model": dict(model)}
        (folder / "warm_start.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")

    return build_once(target, build)


def demonstrations(
    policy: TinyPolicy, settings: Mapping[str, Any], progress: Progress = _quiet, load: Load | None = None
) -> list[Pair]:
    """(prompt, reply) ids of the expert's decisions on the warm start's own games."""
    tasks = policy.benchmark.task_set(settings["split"], settings["tasks"], settings["offset"]).tasks
    pairs: list[Pair] = []
    for done, decisions in enumerate(_played(policy.benchmark, load, tasks, settings["runs"], settings["seed"])):
        pairs += [(policy.render(view), policy.command_ids(action)) for view, action in decisions]
        progress("demonstrations", done + 1, len(tasks))
    return pairs


def _played(
    benchmark: Benchmark, load: Load | None, tasks: Sequence[Task], runs: int, seed: int
) -> Iterator[list[Decision]]:
    """The decisions of each task; in this process where there are few."""
    processes = processes_for(len(tasks))
    if load is None or processes == 1:
        return (list(benchmark.demonstrations([task], runs, seed)) for task in tasks)
    return demonstrate(load, tasks, runs, seed, processes)
