"""TRL's settings of one run, made from our protocol and resources, and the settings that must not be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig

from algorithms.objectives import Objective


def grpo_config(
    protocol: Mapping[str, Any],
    resources: Mapping[str, Any],
    goal: Objective,
    *,
    seed: int,
    folder: Path,
    world: int = 1,
) -> GRPOConfig:
    """TRL's settings of one run, from our protocol and resources. ValueError when episodes do not divide."""
    window = protocol["minibatches"] * protocol["epochs"]
    episodes = protocol["group_size"] * protocol["tasks_per_update"]
    if episodes % (world * protocol["minibatches"]):
        raise ValueError(
            f"protocol.group_size x protocol.tasks_per_update = {episodes} episodes do not divide by "
            f"{world} processes x {protocol['minibatches']} minibatches"
        )
    cuda = torch.cuda.is_available() and resources["device"] != "cpu"
    return GRPOConfig(
        output_dir=str(folder),
        seed=seed,
        num_generations=protocol["group_size"],
        per_device_train_batch_size=episodes // (world * protocol["minibatches"]),
        steps_per_generation=protocol["minibatches"],
        num_iterations=protocol["epochs"],
        gradient_accumulation_steps=1,
        max_steps=protocol["updates"] * window,
        learning_rate=protocol["learning_rate"],
        lr_scheduler_type={"constant": "constant_with_warmup", "linear": "linear"}[protocol["lr_schedule"]],
        warmup_steps=protocol["lr_warmup_updates"] * window,
        adam_beta1=protocol["adam_betas"][0],
        adam_beta2=protocol["adam_betas"][1],
        weight_decay=0.0,
        max_grad_norm=protocol["max_grad_norm"],
        epsilon=protocol["clip_range"],
        beta=protocol["kl_coefficient"],
        use_bias_correction_kl=False,  # the published runs' KL term, whose gradient has no importance ratio in it
        temperature=protocol["temperature"],
        max_completion_length=protocol["max_response_tokens"],
        loss_type=goal.loss_type,
        importance_sampling_level=goal.importance_sampling_level,
        logging_steps=window,
        save_strategy="steps",
        save_steps=protocol["checkpoint_every"] * window,
        report_to=list(resources["report_to"]) or "none",
        use_cpu=not cuda,
        bf16=cuda,
        gradient_checkpointing=resources["gradient_checkpointing"],
        gradient_checkpointing_kwargs={"use_reentrant": False},
        dataloader_num_workers=0,
        shuffle_dataset=False,
        disable_tqdm=True,
        **_vllm(protocol, resources["generation"]),
    )


def _vllm(protocol: Mapping[str, Any], generation: Mapping[str, Any]) -> dict[str, Any]:
    """TRL's settings of vLLM; none where transformers generates."""
    if generation["engine"] != "vllm":
        return {}
    correction = protocol["sampler_correction"]
    return {
        "use_vllm": True,
        "vllm_mode": generation["mode"],
        "vllm_server_base_url": generation["server"],
        "vllm_gpu_memory_utilization": generation["gpu_share"],
        "vllm_tensor_parallel_size": generation["tensor_parallel"],
        "vllm_enable_sleep_mode": generation["sleep"],
        "vllm_max_model_length": protocol["max_prompt_tokens"] + protocol["max_response_tokens"],
        "vllm_importance_sampling_correction": correction != "none",
        **({"vllm_importance_sampling_mode": correction} if correction != "none" else {}),
    }


def refuse_unsupported(args: GRPOConfig) -> None:
    """Settings under which the estimate or the ratio would silently be another one."""
    if args.shuffle_dataset:
        raise ValueError("the task schedule is laid out in advance: set shuffle_dataset=False")
    if args.gradient_accumulation_steps != 1:
        raise ValueError("micro-batches are cut over rows: set gradient_accumulation_steps=1")
    if args.top_p != 1.0 or args.top_k not in (0, -1, None) or args.min_p is not None:
        raise ValueError(
            "truncated sampling (top_p, top_k, min_p) biases the importance ratio: leave it off in training"
        )
    window = args.steps_per_generation * args.num_iterations
    if args.save_strategy == "steps" and args.save_steps % window:
        raise ValueError(f"checkpoints only at the end of an update: save_steps must be a multiple of {window}")
    if args.loss_type not in ("dapo", "grpo"):
        raise ValueError(f"loss_type {args.loss_type!r} is not one of the objectives' (dapo, grpo)")
