"""Evaluation on fixed task lists: every task of a named, hashed list is played the same number of times, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from algorithms.collector import Collector, Episode
from algorithms.generation import Engine, Generate
from algorithms.policy import Policy, evaluating
from benchmarks.base import TaskSet


def sampler(policy: Policy, *, temperature: float, max_new_tokens: int, rows_per_call: int = 64) -> Generate:
    """`Generate` over the policy's own model with transformers; `temperature=0` is greedy decoding."""
    pad, eos = policy.tokenizer.pad_token_id, policy.ends
    options = {"do_sample": False} if temperature == 0 else {"do_sample": True, "temperature": temperature}

    @torch.no_grad()
    def generate(prompts: list[list[int]]) -> tuple[list[list[int]], None]:
        replies: list[list[int]] = []
        for start in range(0, len(prompts), rows_per_call):
            chunk = prompts[start : start + rows_per_call]
            width = max(map(len, chunk))
            device = policy.model.device
            ids = torch.tensor([[pad] * (width - len(p)) + p for p in chunk], device=device)
            mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in chunk], device=device)
            out = policy.model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=max_new_tokens, top_k=0, top_p=1.0,
                pad_token_id=pad, eos_token_id=eos, **options,
            )  # fmt: skip
            replies += [_until_end(row, eos) for row in out[:, width:].tolist()]
        return replies, None

    return generate


def _until_end(ids: list[int], ends: list[int]) -> list[int]:
    """Up to and with the first end token."""
    for i, token in enumerate(ids):
        if token in ends:
            return ids[: i + 1]
    return ids


def evaluate(
    collector: Collector,
    tasks: TaskSet,
    engine: Engine,
    *,
    repeats: int,
    seed: int,
    slots: int,
    progress: Callable[[int, int], None] | None = None,
    share: tuple[int, int] = (0, 1),
    any_active: Callable[[int], bool] = bool,
) -> list[dict[str, Any]]:
    """Play every task `repeats` times, `slots` episodes at a time; one record an episode, in task order.

    `share` (rank, processes): play this process's part only, equally many episodes everywhere (the last ones are played
    again to fill up, and not recorded), and seed it by the rank. The parts in order of rank are the whole. `any_active`
    is the collector's.

    Leaves torch's random state as it was, and draws from `seed` alone, so that an evaluation in the middle of a
    training run changes nothing and can be repeated (with a lock-step engine: by as many processes).
    """
    whole = [(task, repeat) for task in tasks.tasks for repeat in range(repeats)]
    rank, processes = share
    each = -(-len(whole) // processes)
    mine = whole[rank * each : (rank + 1) * each]
    plan = [Episode(task, group=task.id, index=repeat) for task, repeat in mine + whole[-1:] * (each - len(mine))]
    devices = [collector.policy.model.device] if collector.policy.model.device.type == "cuda" else []
    with evaluating(collector.policy.model), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed + 1_000_003 * rank)
        for start in range(0, len(plan), slots):
            collector.collect(plan[start : start + slots], engine, any_active, seed)
            if progress is not None:
                progress(min(start + slots, len(plan)), len(plan))
    return [_record(episode) for episode in plan[: len(mine)]]


def _record(episode: Episode) -> dict[str, Any]:
    reward = sum(step.reward for step in episode.steps)
    return {
        **episode.measures,
        "task": episode.task.id,
        "kind": episode.task.kind,
        "repeat": episode.index,
        "success": episode.success,
        "score": reward,
        "steps": len(episode.steps),
        "format_invalid": sum(not step.format_valid for step in episode.steps),
        "inadmissible": sum(step.format_valid and not step.admissible for step in episode.steps),
        "truncated": sum(step.truncated for step in episode.steps),
    }


def success_rates(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Share of solved episodes by kind and under "all"."""
    by_kind: dict[str, list[bool]] = {}
    for row in rows:
        for name in {row["kind"] or "all", "all"}:
            by_kind.setdefault(name, []).append(row["success"])
    return {name: sum(won) / len(won) for name, won in by_kind.items()}
