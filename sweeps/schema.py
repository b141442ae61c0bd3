"""What a run's configuration may hold: the type and range of every key, checked after composition.

A check takes (dotted name, value) and returns the value in its canonical type, so that `1` and `1.0` given for the
same number make the same run; it raises ConfigError with one line otherwise.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Check = Callable[[str, Any], Any]


class ConfigError(ValueError):
    """A configuration that cannot be used; the message is one line that names the key and the way out."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the closest known word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def whole(low: int) -> Check:
    """A whole number >= low."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ConfigError(f"{name} must be a whole number >= {low}, got {value!r}")
        return value

    return check


def number(low: float, high: float = math.inf, *, open_low: bool = False) -> Check:
    """A finite number in [low, high], or in (low, high] with `open_low`."""
    bounds = f"{'>' if open_low else '>='} {low:g}" + (f" and <= {high:g}" if high < math.inf else "")

    def check(name: str, value: Any) -> float:
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not good or value > high or value < low or (open_low and value == low):
            raise ConfigError(f"{name} must be a number {bounds}, got {value!r}")
        return float(value)

    return check


def choice(*known: str) -> Check:
    """One of the given words."""

    def check(name: str, value: Any) -> str:
        if value not in known:
            hint = nearest(value, known) if isinstance(value, str) else ""
            raise ConfigError(f"{name} must be one of {', '.join(known)}, got {value!r}{hint}")
        return str(value)

    return check


def flag(name: str, value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be true or false, got {value!r}")
    return value


def text(name: str, value: Any) -> str:
    """A non-empty string."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be a non-empty text, got {value!r}")
    return value


def optional(check: Check) -> Check:
    """null, or what `check` takes."""
    return lambda name, value: None if value is None else check(name, value)


def sequence(check: Check, length: int | None = None) -> Check:
    """A list of what `check` takes, of a fixed length where one is given."""

    def check_all(name: str, value: Any) -> list[Any]:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            count = "a list" if length is None else f"a list of {length} values"
            raise ConfigError(f"{name} must be {count}, got {value!r}")
        return [check(f"{name}[{i}]", item) for i, item in enumerate(value)]

    return check_all


def record(**fields: Check) -> Check:
    """A mapping with exactly these keys."""

    def check(name: str, value: Any) -> dict[str, Any]:
        _require_mapping(name, value)
        _refuse_unknown(name, value, fields)
        for key in fields:
            if key not in value:
                raise ConfigError(f"{_join(name, key)} is missing")
        return {key: fields[key](_join(name, key), value[key]) for key in fields}

    return check


def table(check: Check) -> Check:
    """A mapping of free names, at least one, to what `check` takes."""

    def check_all(name: str, value: Any) -> dict[str, Any]:
        _require_mapping(name, value)
        if not value:
            raise ConfigError(f"{name} must hold at least one entry")
        return {str(key): check(_join(name, str(key)), item) for key, item in value.items()}

    return check_all


def plain(name: str, value: Any) -> Any:
    """Any strict-JSON value."""
    if isinstance(value, Mapping):
        return {str(key): plain(_join(name, str(key)), item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(f"{name}[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else "-inf" if value < 0 else _refuse_nan(name)
    if value is not None and not isinstance(value, (str, bool, int, float)):
        raise ConfigError(f"{name} must be a plain value, got {type(value).__name__}")
    return value


def _refuse_nan(name: str) -> Any:
    raise ConfigError(f"{name} must be a number, got nan")


def _require_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name or 'the configuration'} must be a mapping of keys to values, got {value!r}")


def _refuse_unknown(name: str, value: Mapping[str, Any], fields: Mapping[str, Check]) -> None:
    for key in value:
        if key not in fields:
            raise ConfigError(f"unknown key {_join(name, str(key))!r}{nearest(str(key), fields)}")


def _join(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _by_kind(kinds: Mapping[str, Check]) -> Check:
    """A mapping whose key `kind` says which other keys it has."""
    kind = choice(*kinds)

    def check(name: str, value: Any) -> dict[str, Any]:
        _require_mapping(name, value)
        return kinds[kind(f"{name}.kind", value.get("kind"))](name, value)

    return check


_SLICE = {"split": text, "offset": whole(0), "count": optional(whole(1))}
_DECODING = choice("constrained", "free")

_ALGORITHM = record(name=text, objective=optional(choice("ppo", "grpo_c")), options=plain)

_BENCHMARK = record(name=text, success_reward=number(0, open_low=True), options=plain)

_WARM_START = record(
    split=text,
    offset=whole(0),
    tasks=whole(1),
    runs=whole(1),
    steps=whole(0),
    batch_size=whole(1),
    learning_rate=number(0, open_low=True),
    seed=whole(0),
)


def _modules(name: str, value: Any) -> str | list[Any]:
    """`all-linear`, or a list of names of linear modules."""
    if value == "all-linear":
        return "all-linear"
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{name} must be all-linear or a list of module names like [q_proj,v_proj], got {value!r}")
    return sequence(text)(name, value)


_LORA_KEYS: dict[str, Check] = {
    "rank": whole(1),
    "alpha": number(0, open_low=True),
    "dropout": number(0, 0.9),
    "target_modules": _modules,
}


def _lora(name: str, value: Any) -> dict[str, Any] | None:
    """null (all weights are trained), a rank, or a mapping that holds one. alpha: twice the rank by default."""
    if value is None:
        return None
    given = dict(value) if isinstance(value, Mapping) else {"rank": value}
    _refuse_unknown(name, given, _LORA_KEYS)
    if given.get("rank") is None:
        raise ConfigError(f"{name} has no rank; say {name}.rank=N (next to other {name} keys, {name}=N has no effect)")
    rank = whole(1)(_join(name, "rank") if isinstance(value, Mapping) else f"{name} (a rank)", given["rank"])
    defaults = {"rank": rank, "alpha": 2.0 * rank, "dropout": 0.0, "target_modules": "all-linear"}
    return dict(record(**_LORA_KEYS)(name, {**defaults, **given}))


_MODEL = _by_kind(
    {
        "tiny": record(
            name=text,
            kind=text,
            hidden_size=whole(1),
            layers=whole(1),
            heads=whole(1),
            intermediate_size=whole(1),
            decoding=_DECODING,
            warm_start=_WARM_START,
        ),
        "smollm2": record(name=text, kind=text, lora=_lora, decoding=_DECODING),
        "hub": record(
            name=text,
            kind=text,
            path=text,
            revision=optional(text),
            dtype=choice("float32", "bfloat16", "float16"),
            thinking=optional(flag),
            lora=_lora,
            decoding=_DECODING,
        ),
    }
)

_PROTOCOL = record(
    name=text,
    group_size=whole(1),
    tasks_per_update=whole(1),
    updates=whole(0),
    horizon=whole(1),
    temperature=number(0, open_low=True),
    max_prompt_tokens=whole(1),
    max_response_tokens=whole(1),
    learning_rate=number(0),
    lr_warmup_updates=whole(0),
    lr_schedule=choice("constant", "linear"),  # after the warmup; linear: down to 0 at the last update
    adam_betas=sequence(number(0, 1), length=2),
    max_grad_norm=number(0, open_low=True),
    clip_range=number(0, open_low=True),
    kl_coefficient=number(0),
    minibatches=whole(1),
    epochs=whole(1),
    normalization=choice("mean_std", "mean"),
    baseline_over=choice("trajectories", "steps"),
    invalid_action_penalty=number(0),
    invalid_counts=choice("any", "format"),
    state_matching=choice("exact", "ratcliff", "embedding"),
    state_key=text,
    # of vLLM's samples, for what its log-probabilities differ from training's (TRL's names); transformers needs none
    sampler_correction=choice("sequence_mask", "sequence_truncate", "token_mask", "token_truncate", "none"),
    train=record(**_SLICE),
    evaluation=record(
        every=whole(0),
        temperature=number(0),
        seed=whole(0),
        lists=table(record(**_SLICE, repeats=whole(1))),
    ),
    checkpoint_every=whole(1),
)


def _flag_or_text(name: str, value: Any) -> bool | str:
    """true, false, or `text`: rollouts with prompts and replies as text."""
    return "text" if value == "text" else flag(name, value)


_GENERATION = record(
    engine=choice("transformers", "vllm"),
    mode=choice("colocate", "server"),
    server=optional(text),
    gpu_share=number(0, 1, open_low=True),
    tensor_parallel=whole(1),
    sleep=flag,
    options=plain,
)

_RESOURCES = record(
    workers=whole(0),
    threads=whole(1),
    device=choice("auto", "cpu", "cuda"),
    rows_per_microbatch=whole(1),
    gradient_checkpointing=flag,
    generation=_GENERATION,
    report_to=sequence(text),
    save_rollouts=_flag_or_text,
    progress=flag,
    keep_checkpoints=whole(1),
    checkpoint_minutes=number(0, open_low=True),
)

RUN = record(
    algorithm=_ALGORITHM,
    benchmark=_BENCHMARK,
    model=_MODEL,
    protocol=_PROTOCOL,
    resources=_RESOURCES,
    seed=whole(0),
    config_schema=whole(1),
)
