"""How much memory of one GPU a run takes: an estimate, made before anything is loaded.

Weights, gradients and optimizer states are counted in the types they are really held in; activations, the head and
generation are estimates of the tensors that dominate. What a framework keeps beside them is a flat allowance. Imports
no torch, so that planning can afford it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeps.model_shapes import Shape, shape_of
from sweeps.schema import ConfigError

GIB = 1 << 30
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_COMPUTED = 2  # bytes of a number in bfloat16, which GPUs compute in
_ALLOWANCE = 2 * GIB  # CUDA's context, communication buffers, fragmentation
_TILE = 4096  # tokens that the head is computed for at a time


@dataclass(frozen=True)
class Estimate:
    """Bytes on one GPU, by part. `held` stays all the time; the larger of `update` and `rollout` comes on top.

    vllm  its share of the GPU, in [0, 1), of which it needs `vllm_least` bytes for its weights and one episode's
          tokens; while vLLM sleeps (`sleeps`) updates have that share as well
    """

    held: Mapping[str, float]
    update: Mapping[str, float]
    rollout: Mapping[str, float]
    vllm: float = 0.0
    vllm_least: float = 0.0
    sleeps: bool = False

    @property
    def total(self) -> float:
        """The most at one time, without vLLM's share."""
        return sum(self.held.values()) + max(sum(self.update.values()), sum(self.rollout.values()))

    def fits(self, size: float) -> bool:
        """Whether a GPU of `size` bytes is enough."""
        held, share = sum(self.held.values()), self.vllm * size
        if share < self.vllm_least:
            return False
        updating = held + sum(self.update.values()) + (0.0 if self.sleeps else share)
        return max(updating, held + sum(self.rollout.values()) + share) <= size

    def text(self) -> str:
        """`61.2 GiB a GPU: weights 7.1, gradients 7.1, ...`."""
        update = sum(self.update.values()) >= sum(self.rollout.values())
        parts = {**self.held, **(self.update if update else self.rollout)}
        listed = ", ".join(f"{name} {value / GIB:.1f}" for name, value in parts.items() if value >= 0.05 * GIB)
        asleep = ", asleep in updates" if self.sleeps else ""
        vllm = f", and vLLM {self.vllm:.0%} of the GPU (it needs {self.vllm_least / GIB:.1f}{asleep})"
        return f"{self.total / GIB:.1f} GiB a GPU: {listed}{vllm if self.vllm else ''}"


@dataclass(frozen=True)
class Layout:
    """How processes share the work: `world` of them, one a GPU, started by ddp, fsdp, deepspeed or alone (None)."""

    world: int = 1
    launch: str | None = None

    def split(self, *launches: str) -> int:
        """Over how many GPUs something is cut that these launches cut."""
        return self.world if self.launch in launches else 1


def estimate(config: Mapping[str, Any], layout: Layout) -> Estimate | None:
    """The estimate of a run; None where the model's shape is unknown."""
    shape = shape_of(config["model"])
    if shape is None:
        return None
    generation = config["resources"]["generation"]
    colocated = generation["engine"] == "vllm" and generation["mode"] == "colocate"
    trains = config["algorithm"]["objective"] is not None and config["protocol"]["updates"] > 0
    return Estimate(
        held={**(_trained(shape, config, layout) if trains else _frozen(shape, config)), "allowance": _ALLOWANCE},
        update=_update(shape, config, layout) if trains else {},
        rollout=_rollout(shape, config, layout, trains) if generation["engine"] == "transformers" else {},
        vllm=generation["gpu_share"] if colocated else 0.0,
        vllm_least=_engine(shape, config) if colocated else 0.0,
        sleeps=colocated and trains and generation["sleep"],
    )


def _frozen(shape: Shape, config: Mapping[str, Any]) -> dict[str, float]:
    return {"weights": float(shape.parameters * _BYTES[config["model"].get("dtype", "float32")])}


def _trained(shape: Shape, config: Mapping[str, Any], layout: Layout) -> dict[str, float]:
    """Weights, gradients, AdamW's two states and the reference model."""
    lora = config["model"].get("lora")
    if lora is not None:
        return _adapted(shape, config, layout, shape.adapters(lora["rank"], lora["target_modules"]))
    number, deep = shape.parameters, layout.launch == "deepspeed"
    cut, states = layout.split("fsdp"), layout.split("fsdp", "deepspeed")
    # DeepSpeed computes in bfloat16 copies and keeps float32 weights with the optimizer; all others hold float32
    parts = {
        "weights": number * (2 + 4 / states) if deep else number * 4 / cut,
        "gradients": number * (2 if deep else 4) / states,
        "AdamW": number * 8 / states,
    }
    if layout.world > 1 and layout.launch == "ddp":
        parts["gradient buckets"] = number * 4
    if config["protocol"]["kl_coefficient"] > 0:
        parts["reference"] = number * (2 if deep else 4) / cut
    return parts


def _adapted(shape: Shape, config: Mapping[str, Any], layout: Layout, adapters: int) -> dict[str, float]:
    """Frozen weights in their own type; adapters in float32 with gradients and states; the reference is the base."""
    cut, states = layout.split("fsdp"), layout.split("fsdp", "deepspeed")
    base = _COMPUTED if layout.launch == "deepspeed" else _BYTES[config["model"].get("dtype", "float32")]
    return {"weights": shape.parameters * base / cut, "adapters": adapters * 16 / states}


def _update(shape: Shape, config: Mapping[str, Any], layout: Layout) -> dict[str, float]:
    """Activations and what the head needs for `rows_per_microbatch` rows of full length."""
    protocol, resources = config["protocol"], config["resources"]
    rows = resources["rows_per_microbatch"]
    tokens = rows * (protocol["max_prompt_tokens"] + protocol["max_response_tokens"])
    one = _layer_bytes(shape) * tokens
    between = shape.hidden * 4 * tokens  # float32 between layers
    layers = shape.layers * between + one if resources["gradient_checkpointing"] else shape.layers * (one + between)
    full = config["model"].get("lora") is None
    scored = min(rows * protocol["max_response_tokens"], _TILE)
    head = 4 * scored * shape.vocabulary / 8 + (4 * shape.vocabulary * shape.hidden if full else 0)
    return {"activations": layers, "head": head, "computed weights": _copies(shape, layout, full)}


def _layer_bytes(shape: Shape) -> float:
    """Bytes a token that one layer keeps for its backward pass: norms in float32, the rest in bfloat16."""
    attention = 2 * (shape.heads + shape.kv_heads) * shape.head_dim
    return 16 * shape.hidden + _COMPUTED * (attention + 2 * shape.hidden + 4 * shape.intermediate)


def _copies(shape: Shape, layout: Layout, full: bool) -> float:
    """bfloat16 copies of float32 weights (autocast), or what FSDP gathers: two layers, embedding and head."""
    if layout.launch == "fsdp":
        return float((2 * shape.layer + shape.embedding) * _COMPUTED)
    return float(shape.parameters * _COMPUTED) if full and layout.launch != "deepspeed" else 0.0


def _rollout(shape: Shape, config: Mapping[str, Any], layout: Layout, trains: bool) -> dict[str, float]:
    """Keys and values, and the widest tensors of the prompts' pass. Training answers all of a process's episodes in one
    call, evaluation `rows_per_microbatch` of them."""
    protocol = config["protocol"]
    rows = -(-protocol["group_size"] * protocol["tasks_per_update"] // layout.world)
    rows = rows if trains else min(rows, config["resources"]["rows_per_microbatch"])
    prompt, reply = protocol["max_prompt_tokens"], protocol["max_response_tokens"]
    cache = rows * (prompt + reply) * 2 * shape.layers * shape.kv_heads * shape.head_dim * _COMPUTED
    prefill = rows * prompt * (8 * shape.hidden + _COMPUTED * 3 * shape.intermediate)
    copies = _copies(shape, layout, full=False) + 4 * rows * shape.vocabulary
    return {"keys and values": float(cache), "prompts": float(prefill), "generation": float(copies)}


def _engine(shape: Shape, config: Mapping[str, Any]) -> float:
    """What vLLM cannot do without: weights in bfloat16, and keys and values of one episode."""
    length = config["protocol"]["max_prompt_tokens"] + config["protocol"]["max_response_tokens"]
    cache = length * 2 * shape.layers * shape.kv_heads * shape.head_dim * _COMPUTED
    return (shape.parameters * _COMPUTED + cache) / config["resources"]["generation"]["tensor_parallel"]


# --- refusals ---------------------------------------------------------------------------------------------------------


def check(config: Mapping[str, Any], layout: Layout, gpu: float | None) -> None:
    """ConfigError, in one line, for a run that a GPU of `gpu` GiB cannot hold. Silent where either is unknown."""
    guess = estimate(config, layout) if gpu is not None else None
    if guess is None or gpu is None or guess.fits(gpu * GIB):
        return
    raise ConfigError(
        f"model={config['model']['name']} does not fit a GPU of {gpu:.0f} GiB: about {guess.text()}; "
        f"{_way_out(config, layout, guess)}"
    )


def _way_out(config: Mapping[str, Any], layout: Layout, guess: Estimate) -> str:
    """What would help, the most useful first."""
    model, resources = config["model"], config["resources"]
    if guess.vllm:
        ways = ["another resources.generation.gpu_share", "resources.generation.sleep=true"]
    elif sum(guess.rollout.values()) > sum(guess.update.values()):
        ways = ["resources.generation.engine=vllm", "more GPUs"]
    else:
        ways = [] if resources["gradient_checkpointing"] else ["resources.gradient_checkpointing=true"]
        ways += [f"resources.rows_per_microbatch below {resources['rows_per_microbatch']}"]
    if layout.launch != "fsdp":
        ways.append("launch: fsdp over more GPUs")
    if model.get("lora") is None and guess.update:
        ways.append("model.lora=16")
    return f"try {', '.join(ways)}, or a larger GPU (gpu_memory)"
