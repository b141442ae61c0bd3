"""The common trainer: TRL's GRPOTrainer with one training row per environment step.

Three overrides: `_generate_and_score_completions` (collect groups of episodes, estimate advantages, build rows),
`_prepare_inputs` (minibatches that keep every row) and `training_step` (micro-batches over rows, equally many on every
process). Loss, clipping, KL, generation, checkpoints, LoRA and FSDP/DeepSpeed stay TRL's. Batch sizes count episodes,
rows vary, and the number of optimizer steps per update is fixed, never a function of episode lengths.

This is the only module that touches TRL's private methods; `tests/trainer/test_trl_contract.py` freezes them.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object, set_seed
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import pad

from algorithms import estimate
from algorithms.adapters import hold_for_training, lora_config
from algorithms.collector import Collector, Episode, Timings, rollout_batch, rollout_columns, rollout_metrics
from algorithms.generation import BatchEngine, Engine
from algorithms.loss_means import LossMeans
from algorithms.policy import evaluating
from algorithms.trl_settings import refuse_unsupported
from algorithms.vllm_engine import VllmHost, llm_arguments
from benchmarks.base import TaskSet

logger = logging.getLogger(__name__)


@dataclass
class CreditAssignment:
    """How steps are credited: the estimator by name, all its options, and what counts as an invalid step."""

    estimator: str
    options: Mapping[str, Any] = field(default_factory=dict)
    invalid_counts: str = "any"


@dataclass
class Recorder:
    """Where a run's records go: `metrics` takes one row per update, `rollouts` (or None) is a folder for Parquet."""

    metrics: Callable[[dict[str, Any]], None]
    rollouts: Path | None = None
    with_text: bool = False


def _unused_reward(**_: Any) -> list[float]:
    raise RuntimeError("rewards come from the environment")


class AgentTrainer(GRPOTrainer):
    """Group-based RL of an agent on tasks, `CreditAssignment` deciding the advantages.

    `engine_options` are further arguments of `vllm.LLM`; `lora` (see `adapters`) None trains all weights.

    `args.generation_batch_size` counts episodes of one update over all processes (tasks x group size);
    `args.steps_per_generation` is the number of minibatches, `args.num_iterations` the number of epochs over them.
    """

    def __init__(
        self,
        *,
        collector: Collector,
        tasks: TaskSet,
        credit: CreditAssignment,
        recorder: Recorder,
        args: GRPOConfig,
        rows_per_microbatch: int,
        callbacks: list[TrainerCallback] | None = None,
        lora: Mapping[str, Any] | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ):
        refuse_unsupported(args)
        model = hold_for_training(collector.policy.model, lora)
        self.collector, self.tasks, self.credit, self.recorder = collector, tasks, credit, recorder
        self.rows_per_microbatch = rows_per_microbatch
        self._timings: dict[str, float] = {}
        self._means = LossMeans(by_rows=args.importance_sampling_level == "sequence")
        self._buffered_inputs: list[dict[str, torch.Tensor]] | None = None
        per_update = args.generation_batch_size // args.num_generations
        updates = args.max_steps // (args.steps_per_generation * args.num_iterations)
        schedule = task_schedule(len(tasks), per_update, updates, args.seed)
        data = Dataset.from_list([{"prompt": tasks.tasks[i].id, "task": i} for i in schedule])
        set_seed(args.seed)  # the same first adapters on every process
        with self._vllm_arguments(args, engine_options or {}):
            super().__init__(
                model=model,
                reward_funcs=_unused_reward,
                args=args,
                train_dataset=data,
                processing_class=collector.policy.tokenizer,
                callbacks=callbacks,
                peft_config=lora_config(model, lora),
            )
        collector.policy.model = self.model  # with its adapters: what generates and is evaluated is what is trained
        self.remove_callback(PrinterCallback)  # the recorder says what a user needs to see
        # TRL seeds a colocated vLLM engine, and with it this process, without args.seed
        set_seed(args.seed, device_specific=True)
        for model in (self.model, self.ref_model):
            self._keep_own_scoring(model)
        slots = args.per_device_train_batch_size * args.steps_per_generation
        self._vllm = VllmHost(self.vllm_generation, collector.policy.ends, slots) if args.use_vllm else None

    def _vllm_arguments(self, args: GRPOConfig, options: Mapping[str, Any]) -> Any:
        if not args.use_vllm or args.vllm_mode != "colocate":
            return nullcontext()
        dtype = torch.bfloat16 if args.bf16 else self.collector.policy.model.dtype  # what training computes in
        return llm_arguments(options, dtype, cpu=args.use_cpu)

    def _keep_own_scoring(self, model: Any) -> None:
        """A model that scores its own completions keeps its forward: TRL's patch would bypass a restricted head."""
        if hasattr(model, "scoring_temperature"):
            model.__dict__.pop("forward", None)
            model.scoring_temperature = self.temperature

    # ------------------------------------------------------------------------------------------------ rollout
    @property
    def update(self) -> int:
        """1-based number of the update that is being made."""
        return self.state.global_step // self._optimizer_steps + 1

    @property
    def _optimizer_steps(self) -> int:
        return self.args.steps_per_generation * self.num_iterations

    def _collect(self, inputs: list[dict[str, Any]]) -> tuple[list[Episode], Timings]:
        first = self.accelerator.process_index * len(inputs)
        episodes = [
            Episode(self.tasks.tasks[x["task"]], f"{self.update}/{(first + i) // self.num_generations}",
                    (first + i) % self.num_generations)
            for i, x in enumerate(inputs)
        ]  # fmt: skip
        with self.generation(self.temperature) as engine:
            timings = self.collector.collect(episodes, engine, self._any_active, self.args.seed)
        return episodes, timings

    @contextmanager
    def generation(self, temperature: float) -> Iterator[Engine]:
        """An engine that holds the current weights."""
        if self._vllm is None:
            with evaluating(self.model):
                yield BatchEngine(self._reply)
            return
        version, most = self.state.global_step, self.max_completion_length
        with self._vllm.engine(version=version, temperature=temperature, max_tokens=most) as engine:
            yield engine

    def _reply(self, prompts: list[list[int]]) -> tuple[list[list[int]], list[list[float]] | None]:
        return self._generate_single_turn(prompts, None, {}, num_generations=1)

    def _any_active(self, count: int) -> bool:
        return sum(gather_object([count])) > 0 if self.accelerator.num_processes > 1 else count > 0

    def _estimate(self, episodes: list[Episode]) -> torch.Tensor:
        """Advantages [local rows]. Groups may be spread over processes: ids, keys and rewards of all episodes are
        gathered (tokens never), the estimator sees whole groups everywhere, and the local part is kept."""
        local = rollout_columns(episodes, self.credit.invalid_counts)
        parts = gather_object([local]) if self.accelerator.num_processes > 1 else [local]
        columns = {name: [value for part in parts for value in part[name]] for name in local}
        started = time.perf_counter()
        batch = rollout_batch(columns, self.collector.benchmark)
        embed = getattr(self.collector.benchmark, "embed", None)  # only where a benchmark has a model of sentences
        result = estimate(self.credit.estimator, batch, embed=embed, **self.credit.options)
        self._timings["advantage"] = time.perf_counter() - started
        for name, value in rollout_metrics(columns, result.diagnostics).items():
            self._metrics["train"][name].append(value)
        self._log_measures(episodes)
        if self.recorder.rollouts is not None and self.accelerator.is_main_process:
            self._write_rollouts(self.recorder.rollouts, columns, episodes)
        before = sum(len(part["group"]) for part in parts[: self.accelerator.process_index])
        mine = result.advantages[before : before + len(local["group"])]
        return torch.as_tensor(mine, dtype=torch.float32, device=self.accelerator.device)

    def _write_rollouts(self, folder: Path, columns: dict[str, list[Any]], episodes: list[Episode]) -> None:
        """Text columns are written by single-process runs only: tokens are not gathered."""
        text: dict[str, list[str]] = {}
        if self.recorder.with_text and self.accelerator.num_processes == 1:
            steps = [step for episode in episodes for step in episode.steps]
            decode = self._tokenizer.batch_decode
            text = {
                "prompt": decode([s.prompt_ids for s in steps]),
                "completion": decode([s.completion_ids for s in steps]),
            }
        batch = rollout_batch(columns, self.collector.benchmark, **text)
        batch.write_parquet(folder / f"{self.update:06d}.parquet")

    def _log_measures(self, episodes: list[Episode]) -> None:
        """Means over the episodes of all processes of the numbers that the benchmark measured."""
        local = [dict(episode.measures) for episode in episodes]
        every = gather_object(local) if self.accelerator.num_processes > 1 else local
        for name in dict.fromkeys(name for measures in every for name in measures):
            values = [float(m[name]) for m in every if isinstance(m.get(name), (bool, int, float))]
            if values:
                self._metrics["train"][f"measure/{name}"].append(sum(values) / len(values))

    # ------------------------------------------------------------------------------------------------ override 1
    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        started = time.perf_counter()
        episodes, timings = self._collect(inputs)
        self._timings = {
            "rollout": time.perf_counter() - started,
            "generation": timings.generation,
            "environment": timings.environment,
            "prompts": timings.prompts,
            "update": 0.0,
        }
        batch = self._rows(episodes)
        batch["advantages"] = self._estimate(episodes)
        started = time.perf_counter()
        self._add_logps(batch, episodes)
        self._timings["old_logprob"] = time.perf_counter() - started
        return batch

    def _rows(self, episodes: list[Episode]) -> dict[str, torch.Tensor]:
        """Prompts left padded, completions right padded: [rows, length] each."""
        steps = [step for episode in episodes for step in episode.steps]
        device, fill = self.accelerator.device, self._tokenizer.pad_token_id
        prompts, prompt_mask = _stacked([s.prompt_ids for s in steps], fill, left=True)
        replies, reply_mask = _stacked([s.completion_ids for s in steps], fill, left=False)
        return {
            "prompt_ids": prompts.to(device),
            "prompt_mask": prompt_mask.to(device),
            "completion_ids": replies.to(device),
            "completion_mask": reply_mask.to(device),
            "tool_mask": reply_mask.to(device, copy=True),  # zeroed on filler rows
        }

    def _add_logps(self, batch: dict[str, torch.Tensor], episodes: list[Episode]) -> None:
        """Log-probabilities of the policy that sampled, of the reference, and the sampler's correction: only what the
        loss will read. With one optimizer step per update the old policy is the current one."""
        corrected = self.use_vllm and self.vllm_importance_sampling_correction
        if self._optimizer_steps > 1 or corrected:
            batch["old_per_token_logps"] = self._score(self.model, batch)
        if self.beta != 0.0:
            batch["ref_per_token_logps"] = self._score_reference(batch)
        if corrected:
            sampled = [torch.tensor(s.sampling_logps) for e in episodes for s in e.steps]
            logps = pad(sampled, padding_value=0.0, padding_side="right").to(self.accelerator.device)
            mask = batch["completion_mask"] * batch["tool_mask"]
            ratio, gap = sampling_correction(
                batch["old_per_token_logps"], logps, mask, mode=self.vllm_importance_sampling_mode,
                low=self.vllm_importance_sampling_clip_min, high=self.vllm_importance_sampling_clip_max,
            )  # fmt: skip
            batch["sampling_per_token_logps"] = logps
            batch["importance_sampling_ratio"] = ratio.expand_as(logps).contiguous()
            self._metrics["train"]["sampling_logp_gap"].append(gap)

    def _score(self, model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """[rows, completion length] log-probabilities, without gradient. Every process scores equally many chunks."""
        rows = batch["prompt_ids"].size(0)
        most = int(self.accelerator.gather(torch.tensor([rows], device=self.accelerator.device)).max())
        index = torch.arange(most, device=self.accelerator.device).clamp(max=rows - 1)
        parts = []
        with torch.no_grad(), evaluating(model):
            for start in range(0, most, self.rows_per_microbatch):
                chunk = {k: batch[k][index[start : start + self.rows_per_microbatch]] for k in _SEQUENCES}
                ids = torch.cat([chunk["prompt_ids"], chunk["completion_ids"]], 1)
                mask = torch.cat([chunk["prompt_mask"], chunk["completion_mask"]], 1)
                logps, _, _ = self._get_per_token_logps_and_entropies(model, ids, mask, chunk["completion_ids"].size(1))
                parts.append(logps)
        return torch.cat(parts)[:rows]

    def _score_reference(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if self.ref_model is not None:
            return self._score(self.ref_model, batch)
        with self.accelerator.unwrap_model(self.model).disable_adapter():  # LoRA: the adapter-free base
            return self._score(self.model, batch)

    # ------------------------------------------------------------------------------------------------ override 2
    def _prepare_inputs(self, generation_batch: Any) -> dict[str, torch.Tensor]:
        window = self._buffered_inputs
        if self._step % self._optimizer_steps == 0 or window is None:
            batch = self._generate_and_score_completions(generation_batch)
            order = torch.randperm(batch["advantages"].numel(), device=self.accelerator.device)
            # tensor_split keeps every row; TRL's own split drops the remainder
            pieces = torch.tensor_split(order, self.args.steps_per_generation)
            self._buffered_inputs = window = [{k: v[piece] for k, v in batch.items()} for piece in pieces]
        return window[self._step % self.args.steps_per_generation]

    # ------------------------------------------------------------------------------------------------ override 3
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Loss of one minibatch, its gradients accumulated over micro-batches of rows. The value is scaled so that
        its mean over processes is the loss over all rows of all processes."""
        model.train()
        minibatch = self._prepare_inputs(inputs)
        started = time.perf_counter()
        micro, tokens, rows = self._microbatches(minibatch)
        local = torch.stack([(piece["completion_mask"] * piece["tool_mask"]).sum() for piece in micro])
        scored = self.accelerator.reduce(local.float(), reduction="sum").tolist()  # tokens of each, everywhere
        self.current_gradient_accumulation_steps = len(micro)  # what TRL's loss divides its means by
        total = torch.zeros((), device=self.accelerator.device)
        for i, piece in enumerate(micro):
            # TRL rescales this count to one accumulation window; undo that, so that the divisor is `tokens`
            piece["num_items_in_batch"] = tokens.float() * self.args.steps_per_generation / len(micro)
            weight = 1.0
            if self.loss_type == "grpo":  # a mean over the rows of this micro-batch
                weight = piece["advantages"].numel() * self.accelerator.num_processes * len(micro) / rows
            last = i + 1 == len(micro)
            self.accelerator.gradient_state._set_sync_gradients(last)  # or DeepSpeed makes a step each time
            with nullcontext() if last else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    loss = self._compute_loss(model, piece) * weight
                self.accelerator.backward(loss)
            total += loss.detach()
            self._means.take(
                self._metrics["train"], tokens=scored[i], rows=rows / len(micro),
                scored=piece["advantages"].numel() * self.accelerator.num_processes,
            )  # fmt: skip
        self._step += 1
        self._timings["update"] += time.perf_counter() - started
        if self._step % self._optimizer_steps == 0:
            for name, seconds in self._timings.items():
                self._metrics["train"][f"timing/{name}"].append(seconds)
        return total

    def _microbatches(self, batch: dict[str, torch.Tensor]) -> tuple[list[dict[str, torch.Tensor]], torch.Tensor, int]:
        """(micro-batches, tokens over all processes, rows over all processes). Every process gets equally many
        micro-batches of equally many rows; filler rows carry tool_mask 0 and advantage 0."""
        size, rows = self.rows_per_microbatch, batch["advantages"].numel()
        device = self.accelerator.device
        tokens = int((batch["completion_mask"] * batch["tool_mask"]).sum())
        counts = self.accelerator.gather(torch.tensor([[rows, tokens]], device=device))
        number = max(1, -(-int(counts[:, 0].max()) // size))
        if rows == 0:
            raise RuntimeError("a process has no rows in a minibatch: lower protocol.minibatches")
        size = -(-int(counts[:, 0].max()) // number)  # even sizes: fewer filler rows
        filler = number * size - rows
        if filler:
            index = torch.cat([torch.arange(rows, device=device), torch.zeros(filler, dtype=torch.long, device=device)])
            batch = {k: v[index].clone() for k, v in batch.items()}
            batch["tool_mask"][rows:] = 0
            batch["advantages"][rows:] = 0.0
        micro = [_trim({k: v[i * size : (i + 1) * size] for k, v in batch.items()}) for i in range(number)]
        return micro, counts[:, 1].sum(), int(counts[:, 0].sum())

    # ------------------------------------------------------------------------------------------------ records
    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log, plus one row per update in the run's own metrics file."""
        if "loss" in logs:
            self._means.close(self._metrics["train"])
        super().log(logs, start_time)
        if self.accelerator.is_main_process and "loss" in logs:
            row = {k: v for k, v in logs.items() if isinstance(v, (int, float)) and k not in ("epoch", "step_time")}
            row["lr"] = row.pop("learning_rate")
            if self.accelerator.device.type == "cuda":  # the most that tensors of this process took since the last row
                row["gpu_memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
                torch.cuda.reset_peak_memory_stats()
            self.recorder.metrics({"update": self.state.global_step // self._optimizer_steps, **row})

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Checkpoints are records of a run, not hub uploads."""

    def _get_output_dir(self, trial: Any) -> str:
        """Checkpoints are written beside their final place and renamed, so that a killed run leaves whole ones."""
        return os.path.join(self.args.output_dir, ".partial")

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        started = time.perf_counter()
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            name = f"checkpoint-{self.state.global_step}"
            root = Path(self.args.output_dir)
            shutil.rmtree(root / name, ignore_errors=True)
            os.replace(root / ".partial" / name, root / name)
            for old in checkpoints(root)[: -self.keep_checkpoints or None]:
                shutil.rmtree(old)
        self.accelerator.wait_for_everyone()
        logger.debug("checkpoint of %.2f s", time.perf_counter() - started)

    keep_checkpoints = 2


_SEQUENCES = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")


def task_schedule(tasks: int, per_update: int, updates: int, seed: int) -> list[int]:
    """Indices of the tasks of all updates, in order: passes over the list, each in its own random order.

    The whole schedule is laid out before training: TRL's sampler forgets on a resume which pass it was in. It depends
    on the seed and the protocol alone, so all methods of a comparison see the same tasks at the same update.
    """
    order: list[int] = []
    for epoch in range(-(-per_update * updates // tasks)):
        order += np.random.default_rng([seed, epoch]).permutation(tasks).tolist()
    return order[: per_update * updates]


def _stacked(sequences: list[list[int]], fill: int, *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, mask), [sequences, longest] each, padded on the left or on the right; the mask is 1 on ids."""
    lengths = np.array([len(sequence) for sequence in sequences])
    width = int(lengths.max())
    place = np.arange(width)
    mask = place >= width - lengths[:, None] if left else place < lengths[:, None]
    ids = np.full(mask.shape, fill)
    ids[mask] = np.fromiter(itertools.chain.from_iterable(sequences), dtype=np.int64, count=int(lengths.sum()))
    return torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))


def _trim(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Cut off columns that are padding in every row of a micro-batch."""
    prompt = int(batch["prompt_mask"].sum(1).max())
    reply = int(batch["completion_mask"].sum(1).max())
    cut = {
        k: v[:, -prompt:] if k.startswith("prompt_") else v[:, :reply] if v.dim() == 2 else v for k, v in batch.items()
    }
    return {k: v.contiguous() for k, v in cut.items()}


def sampling_correction(
    old: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor, *, mode: str, low: float | None, high: float | None
) -> tuple[torch.Tensor, float]:
    """Importance ratio between the training engine's and the sampling engine's log-probabilities of the same tokens.

    old, sampled, mask [rows, length] -> ratio [rows, length] (`token_*`) or [rows, 1] (`sequence_*`, over the summed
    difference), clamped to [low, high] (`*_truncate`) or zero outside of it (`*_mask`); and the largest absolute
    difference of a token, which should be near 0: a jump means that weights were not synchronized. Tokens without a
    sampled log-probability (NaN) get no correction.
    """
    difference = torch.nan_to_num((old - sampled) * mask, nan=0.0)
    gap = float(difference.abs().max())
    ratio = (difference.sum(-1, keepdim=True) if mode.startswith("sequence_") else difference).exp()
    if mode.endswith("_truncate"):
        return ratio.clamp(min=low, max=high), gap
    outside = (ratio < (float("-inf") if low is None else low)) | (ratio > (float("inf") if high is None else high))
    return ratio.masked_fill(outside, 0.0), gap


def checkpoints(folder: Path) -> list[Path]:
    """Whole checkpoints in a folder, oldest first."""
    found = [p for p in folder.glob("checkpoint-*") if p.is_dir()]
    return sorted(found, key=lambda p: int(p.name.rpartition("-")[2]))
