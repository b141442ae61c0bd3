"""Trains a small model through vLLM on this machine's CPU and prints what was seen, as one line of JSON.

A process of its own, because vLLM changes the process it runs in. `python vllm_worker.py FOLDER full|lora`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from accelerate import PartialState

sys.path.insert(0, str(Path(__file__).parent.parent / "trainer"))

from test_chat_model import CHAT, Talking, save_model
from test_gradients import PROTOCOL

from algorithms.collector import Collector, Episode, rollout_columns
from algorithms.evaluation import sampler
from algorithms.generation import BatchEngine
from algorithms.objectives import objective
from algorithms.policy import load_policy
from algorithms.trainer import AgentTrainer, CreditAssignment, Recorder
from algorithms.trl_settings import grpo_config

GENERATION = {
    "engine": "vllm", "mode": "colocate", "server": None, "gpu_share": 0.3, "tensor_parallel": 1, "sleep": False,
    "options": {"kv_cache_memory_bytes": 64 << 20},
}  # fmt: skip
SETTINGS = {**PROTOCOL, "max_prompt_tokens": 96, "sampler_correction": "sequence_mask"}
SEED = 7
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
LORA = {"rank": 4, "alpha": 16.0, "dropout": 0.0, "target_modules": "all-linear"}


def make_trainer(folder, policy, logged, lora):
    resources = {"device": "cpu", "gradient_checkpointing": False, "generation": GENERATION, "report_to": []}
    args = grpo_config(SETTINGS, resources, objective("ppo"), seed=SEED, folder=folder, world=WORLD)
    args.optim, args.save_strategy = "sgd", "no"
    pool = policy.benchmark.pool(12)
    return AgentTrainer(
        collector=Collector(policy.benchmark, policy, pool, horizon=6, state_key="observation", history=2),
        tasks=policy.benchmark.task_set("train", 12),
        credit=CreditAssignment("graft", {"invalid_action_penalty": 0.1}),
        recorder=Recorder(logged.append),
        args=args,
        rows_per_microbatch=8,
        engine_options=GENERATION["options"],
        lora=lora,
    )


def watch_batches(trainer):
    """The tensors that every update trains on, with the weights that sampled them."""
    seen, make = [], trainer._generate_and_score_completions

    def making(inputs):
        batch = make(inputs)
        seen.append({**batch, "weights": torch.cat([p.detach().flatten() for p in trainer.model.parameters()])})
        return batch

    trainer._generate_and_score_completions = making
    return seen


def episodes_of(policy):
    return [Episode(task, task.id, i) for task in policy.benchmark.task_set("train", 6).tasks for i in range(2)]


def play(trainer, engine, seed=1):
    episodes = episodes_of(trainer.collector.policy)
    trainer.collector.collect(episodes, engine, seed=seed)
    return episodes


def gap(trainer, episodes):
    """Largest difference between vLLM's log-probabilities and transformers', row by row and without padding."""
    worst = 0.0
    for step in (step for episode in episodes for step in episode.steps):
        ids = torch.tensor([step.prompt_ids + step.completion_ids])
        with torch.no_grad():
            logits = trainer.model(input_ids=ids).logits[0, len(step.prompt_ids) - 1 : -1]
        reply = torch.tensor(step.completion_ids)[:, None]
        logps = logits.log_softmax(-1).gather(1, reply)[:, 0]
        worst = max(worst, float((logps - torch.tensor(step.sampling_logps)).abs().max()))
    return worst


def main(folder: Path, kind: str) -> None:
    """Everything the test looks at."""
    if os.environ.get("RANK", "0") == "0":
        save_model(folder / "model", hidden_size=64, tie_word_embeddings=True)
    PartialState(cpu=True).wait_for_everyone()
    policy = load_policy(CHAT, Talking(), folder=folder / "model")
    logged: list[dict] = []
    trainer = make_trainer(folder / "run", policy, logged, LORA if kind == "lora" else None)
    seed = torch.initial_seed()
    batches = watch_batches(trainer)
    trainer.train()
    policy.model.eval()

    def through_vllm(temperature, order_seed=1):
        with trainer.generation(temperature) as engine:
            return play(trainer, engine, order_seed)

    greedy = rollout_columns(through_vllm(0.0))
    direct = rollout_columns(play(trainer, BatchEngine(sampler(policy, temperature=0.0, max_new_tokens=6))))
    once, again, other = (rollout_columns(through_vllm(1.0, seed)) for seed in (1, 1, 2))
    synced = gap(trainer, through_vllm(1.0))
    with torch.no_grad():
        for parameter in (p for p in trainer.model.parameters() if p.requires_grad):
            parameter.add_(0.2 * torch.randn_like(parameter))
    stale = gap(trainer, through_vllm(1.0))  # the same version: not pushed
    trainer.state.global_step += 1
    pushed = gap(trainer, through_vllm(1.0))

    answer = {
        "seed": seed,
        "gaps": [row["sampling_logp_gap"] for row in logged],
        "ratio_shapes": [b["importance_sampling_ratio"].shape == b["completion_ids"].shape for b in batches],
        "ratios": [[float(end) for end in b["importance_sampling_ratio"].aminmax()] for b in batches],
        "sampled_is_old": [
            float(((b["sampling_per_token_logps"] - b["old_per_token_logps"]) * b["completion_mask"]).abs().max())
            for b in batches
        ],
        "moved": float((batches[1]["weights"] - batches[0]["weights"]).abs().max()),
        "greedy_equal": greedy == direct,
        "turns": len(set(greedy["step"])),
        "sampled_repeats": once == again,
        "seeds_differ": once != other,
        "synced": synced, "stale": stale, "pushed": pushed,
        "updates": [[row[name] for name in ("rows", "success", "return", "completion_tokens")] for row in logged],
    }  # fmt: skip
    if trainer.accelerator.is_main_process:
        print(json.dumps(answer, allow_nan=False), flush=True)
    trainer.accelerator.wait_for_everyone()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
