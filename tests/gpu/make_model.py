"""A chat model made on the spot, for checks where no weights can be had: `python tests/gpu/make_model.py FOLDER`.

A Llama of SmolLM2-135M's shape with random weights, a word-level tokenizer and a chat template. Most of its vocabulary
are whole replies of an expert, so that a model that knows nothing still acts, and sometimes succeeds: groups differ,
and updates change weights.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import benchmarks
from benchmarks.base import Benchmark

SPECIAL = ("<pad>", "<eos>", "<unk>", "<user>", "<agent>")
TEMPLATE = (
    "{% for m in messages %}{{ '<agent> ' if m['role'] == 'assistant' else '<user> ' }}{{ m['content'] }}"
    "{{ ' ' if loop.last else ' <eos> ' }}{% endfor %}{% if add_generation_prompt %}<agent>{% endif %}"
)
# vocabulary, hidden size, intermediate size, layers, heads (of 32 or more, for vLLM on a CPU), key/value heads
SHAPES = {"smollm2": (49152, 576, 1536, 30, 9, 3), "small": (2048, 64, 128, 2, 2, 2)}
LENGTH = 8192


def spoken(benchmark: Benchmark, tasks: int, offset: int) -> tuple[list[str], list[str]]:
    """(words of the prompts, an expert's replies) on training tasks from `offset` on."""
    words: dict[str, None] = {}
    replies: dict[str, None] = {}
    chosen = benchmark.task_set("train", tasks, offset).tasks
    for view, action in benchmark.demonstrations(chosen, 2, 0):
        for message in benchmark.messages(view):
            words.update(dict.fromkeys(message["content"].split()))
        replies[benchmark.reply(view, action)] = None  # type: ignore[attr-defined]
    return list(words), list(replies)


def vocabulary(size: int, words: Iterable[str], replies: Sequence[str]) -> list[str]:
    """`size` different entries: a fifth at most are words, the rest are the replies again and again; the number in
    front tells their copies apart."""
    known = [*SPECIAL, *itertools.islice((word for word in words if word not in SPECIAL), size // 5)]
    copies = (f"{number} {reply}" for number in itertools.count() for reply in replies)
    return [*known, *itertools.islice(copies, size - len(known))]


def save(folder: Path, shape: str, entries: Sequence[str], seed: int = 0) -> None:
    """Weights, configuration and tokenizer, as transformers reads them."""
    inner = Tokenizer(WordLevel({entry: i for i, entry in enumerate(entries)}, unk_token="<unk>"))
    inner.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(folder)
    _, hidden, intermediate, layers, heads, kv_heads = SHAPES[shape]
    config = LlamaConfig(
        vocab_size=len(entries), hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=LENGTH,
        tie_word_embeddings=True, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(seed)
    LlamaForCausalLM(config).save_pretrained(folder)


def make(folder: Path, shape: str, benchmark: Benchmark, tasks: int = 16, offset: int = 0) -> Path:
    """A model that speaks of a benchmark's training tasks, in `folder`."""
    words, replies = spoken(benchmark, tasks, offset)
    save(folder, shape, vocabulary(SHAPES[shape][0], words, replies))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="smollm2")
    parser.add_argument("--benchmark", default="worlds", help="whose actions it knows (default: %(default)s)")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of the benchmark")
    parser.add_argument("--tasks", type=int, default=16, help="training tasks whose actions it knows")
    parser.add_argument("--offset", type=int, default=0, help="the first of them")
    given = parser.parse_args()
    options = dict(text.split("=", 1) for text in given.option)
    make(given.folder, given.shape, benchmarks.load(given.benchmark, **options), given.tasks, given.offset)
    print(f"{given.shape} model for {given.benchmark} in {given.folder}")


if __name__ == "__main__":
    main()
