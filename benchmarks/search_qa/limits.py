"""Cutting texts to a number of tokens: the model's own tokens, or words and punctuation marks without a tokenizer."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_PIECE = re.compile(r"\w{1,16}|[^\w\s]")  # a text without spaces is no single word


@dataclass(frozen=True)
class Cutter:
    """Cuts texts at `limit` tokens of `tokenizer` (a hub name or folder; "" counts words and marks). 0: never."""

    limit: int
    tokenizer: str = ""

    def __call__(self, text: str) -> tuple[str, bool]:
        """(text, False), or its first `limit` tokens as they stand in the text, and True."""
        if not self.limit:
            return text, False
        ends = _ends(text, self.tokenizer)
        return (text, False) if len(ends) <= self.limit else (text[: ends[self.limit - 1]], True)


def _ends(text: str, tokenizer: str) -> list[int]:
    """Where each token ends, in characters."""
    if not tokenizer:
        return [piece.end() for piece in _PIECE.finditer(text)]
    encoded = _tokenizer(tokenizer)(text, add_special_tokens=False, return_offsets_mapping=True)
    return [end for _, end in encoded["offset_mapping"]]


@functools.lru_cache(maxsize=2)
def _tokenizer(name: str):  # type: ignore[no-untyped-def]
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name, use_fast=True)
