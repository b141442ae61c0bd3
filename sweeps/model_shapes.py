"""Shapes of decoder models: how many parameters they have, and how wide what they compute is.

Constants are those of the public `config.json` of each model; parameter counts from them are the published ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Shape:
    """A decoder of the Llama family. tied: the head is the embedding. qkv_bias: Qwen2's; qk_norm: Qwen3's."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    qkv_bias: bool = False
    qk_norm: bool = False

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """(in, out) of the linear modules of one layer."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (self.hidden, q), "k_proj": (self.hidden, kv), "v_proj": (self.hidden, kv),
            "o_proj": (q, self.hidden), "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate), "down_proj": (self.intermediate, self.hidden),
        }  # fmt: skip

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        bias = (self.heads + 2 * self.kv_heads) * self.head_dim if self.qkv_bias else 0
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        return sum(a * b for a, b in self.matrices.values()) + bias + norms

    @property
    def embedding(self) -> int:
        """Parameters of the embedding, and of an untied head."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.layers * self.layer + self.embedding + self.hidden

    def adapters(self, rank: int, targets: str | Sequence[str]) -> int:
        """Parameters of LoRA adapters of this rank."""
        chosen = [shape for name, shape in self.matrices.items() if targets == "all-linear" or name in targets]
        return self.layers * rank * sum(a + b for a, b in chosen)


KNOWN = {
    "Qwen/Qwen2.5-1.5B-Instruct": Shape(1536, 28, 12, 2, 128, 8960, 151936, True, qkv_bias=True),
    "Qwen/Qwen2.5-3B-Instruct": Shape(2048, 36, 16, 2, 128, 11008, 151936, True, qkv_bias=True),
    "Qwen/Qwen2.5-7B-Instruct": Shape(3584, 28, 28, 4, 128, 18944, 152064, False, qkv_bias=True),
    "Qwen/Qwen3-4B": Shape(2560, 36, 32, 8, 128, 9728, 151936, True, qk_norm=True),
    "Qwen/Qwen3-8B": Shape(4096, 36, 32, 8, 128, 12288, 151936, False, qk_norm=True),
}
SMOLLM2 = Shape(576, 30, 9, 3, 64, 1536, 49152, True)
_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def shape_of(model: Mapping[str, Any]) -> Shape | None:
    """The shape of a `model` configuration: of a preset, or by the config.json of a local folder; None if unknown."""
    if model["kind"] == "smollm2":
        return SMOLLM2
    if model["kind"] != "hub":
        return None
    return KNOWN.get(model["path"]) or _of_folder(Path(model["path"]).expanduser())


def _of_folder(folder: Path) -> Shape | None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if config["model_type"] not in _FAMILIES:
            return None
        heads = config["num_attention_heads"]
        return Shape(
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=config["model_type"] == "qwen2",
            qk_norm=config["model_type"] == "qwen3",
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
