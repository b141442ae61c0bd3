"""Run configurations: composed by Hydra from `sweeps/conf`, resolved, checked, and named by a hash.

A configuration is a plain nested dict with the keys `algorithm`, `benchmark`, `model`, `protocol`, `resources`, `seed`
and `config_schema`. Everything but `resources` is the science of a run and makes its identity. A group's value that
depends on the choice in another group stands in a `by_<group>` table next to it; the tables are not part of the result.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from sweeps.schema import RUN, ConfigError, nearest

__all__ = ["CONF", "GROUPS", "ConfigError", "choices", "compose", "identity", "validate"]

CONF = Path(__file__).resolve().parent / "conf"
GROUPS = ("algorithm", "benchmark", "model", "protocol", "resources")

# Mappings whose keys are not known in advance: an override may add to them.
_FREE = ("algorithm.options", "benchmark.options", "model.lora", "protocol.evaluation.lists")

# Science keys added after config_schema 1 with the value that means "as before"; left out of the hash when equal.
_DEFAULTS_AT_INTRODUCTION: dict[str, Any] = {"protocol.sampler_correction": "sequence_mask", "model.lora": None}


def compose(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> dict[str, Any]:
    """The resolved, checked configuration of one run.

    Args:
      overrides: Hydra overrides: `group=choice`, `dotted.key=value`, `~dotted.key`.
      config_dir: a folder with more choices, laid out like `sweeps/conf` (`algorithm/mine.yaml`).

    Raises ConfigError, one line, for an unknown group choice or key, a value of the wrong type or range, a missing
    value, or anything else Hydra refuses.
    """
    extra = _checked_folder(config_dir)
    parsed = [_parse(text) for text in overrides]
    groups = [entry for entry in parsed if entry.key in GROUPS]
    for entry in groups:
        _check_choice(entry, extra)
    group_texts = [entry.text for entry in groups]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        base = _run_hydra(group_texts, extra)
        texts = [_value_override(entry, base) for entry in parsed if entry.key not in GROUPS]
        composed = _run_hydra(group_texts + texts, extra) if texts else base
    return finish(resolve(composed), _unresolved(base))


def unresolved(groups: Sequence[str] = (), config_dir: str | Path | None = None) -> dict[str, Any]:
    """The composition of these `group=choice` texts before any interpolation, its `by_` tables included."""
    extra = _checked_folder(config_dir)
    for text in groups:
        _check_choice(_parse(text), extra)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return _unresolved(_run_hydra(groups, extra))


def finish(config: dict[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved configuration, checked, its numbers written as in the unresolved one that it was made from."""
    return validate(_numbers_like(config, base))


def parse_value(text: str) -> tuple[str, Any]:
    """(key, value) of one override text; the key begins with `~` where it takes something out."""
    entry = _parse(text)
    return (f"~{entry.key}" if entry.delete else entry.key), entry.value


def validate(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with every value in its canonical type; ConfigError for the first key that is wrong."""
    checked = RUN("", config)
    checked["algorithm"]["options"] = _checked_options(checked["algorithm"])
    _check_sums(checked)
    _check_prompted(checked)
    return checked


def identity(config: Mapping[str, Any]) -> str:
    """16 hex digits: SHA-256 over canonical JSON (sorted keys, no spaces) of the science part of a configuration."""
    science = {key: value for key, value in config.items() if key != "resources"}
    for dotted, default in _DEFAULTS_AT_INTRODUCTION.items():
        science = _without(science, dotted.split("."), default)
    record = json.dumps(science, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(record.encode()).hexdigest()[:16]


def choices(group: str, config_dir: str | Path | None = None) -> tuple[str, ...]:
    """Names that `group=` takes, sorted."""
    folders = [CONF / group] + ([Path(config_dir) / group] if config_dir else [])
    return tuple(sorted({path.stem for folder in folders for path in folder.glob("*.yaml")}))


# --- overrides --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """One override: its text, key ("protocol.updates") and value; `delete` for `~key`."""

    text: str
    key: str
    value: Any
    delete: bool


def _parse(text: str) -> _Entry:
    if "=" not in text and not text.startswith("~"):
        of_group = [f"{group}={text}" for group in GROUPS if text in choices(group)]
        hint = f"; did you mean {of_group[0]!r}?" if of_group else ""
        raise ConfigError(f"cannot read {text!r}: an override is key=value{hint}")
    try:
        parsed: Override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ConfigError(f"cannot read the override {text!r}: {_one_line(error)}") from None
    if parsed.is_sweep_override():
        raise ConfigError(f"{text!r} lists several values; a run takes one value for each key")
    key = parsed.key_or_group.replace("/", ".")
    if key.split(".")[0] == "hydra":
        raise ConfigError(f"{text!r}: hydra's own settings cannot be changed; use --config-dir to add configurations")
    return _Entry(text, key, parsed.value(), parsed.is_delete())


def _check_choice(entry: _Entry, extra: Path | None) -> None:
    group, value = entry.key, entry.value
    if entry.delete:
        raise ConfigError(f"{entry.text!r}: a run needs its {group}; choose another one with {group}=...")
    known = choices(group, extra)
    if not isinstance(value, str) or value not in known:
        if group == "algorithm" and _is_registered(value):
            raise ConfigError(
                f"estimator {value!r} is registered but has no configuration: write algorithm/{value}.yaml with name, "
                "objective and options in a folder of yours, and give that folder as --config-dir"
            )
        hint = nearest(str(value), known)
        raise ConfigError(f"{group} {str(value)!r} does not exist{hint} (known: {', '.join(known)})")


def _is_registered(name: Any) -> bool:
    from algorithms import estimators

    return name in estimators()


def _value_override(entry: _Entry, base: DictConfig) -> str:
    """The override as Hydra text; keys of free mappings may be new, all others must exist."""
    check_key(entry.key, key_paths(_unresolved(base)))
    if entry.delete:
        return entry.text
    return f"++{entry.text.lstrip('+')}"


def check_key(key: str, known: Collection[str]) -> None:
    """ConfigError, with the nearest known key, for one that a configuration does not have and cannot get."""
    free = any(key.startswith(f"{prefix}.") for prefix in _FREE)
    if not free and key not in known:
        raise ConfigError(f"unknown key {key!r}{_nearest_key(key, known)}")


def _nearest_key(key: str, known: Iterable[str]) -> str:
    """The hint for an unknown key: one of the same last name, or the closest by spelling."""
    known = list(known)
    last = key.rsplit(".", 1)[-1]
    same_leaf = [name for name in known if name.rsplit(".", 1)[-1] == last]
    if same_leaf:
        best = max(same_leaf, key=lambda name: difflib.SequenceMatcher(None, key, name).ratio())
        return f"; did you mean {best!r}?"
    by_leaf = {name.rsplit(".", 1)[-1]: name for name in known if name.rpartition(".")[0] == key.rpartition(".")[0]}
    close = difflib.get_close_matches(last, by_leaf, n=1, cutoff=0.6)
    return f"; did you mean {by_leaf[close[0]]!r}?" if close else nearest(key, known)


def key_paths(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of all keys, inner ones included, without the `by_` tables."""
    names = []
    for key, value in tree.items():
        if str(key).startswith("by_"):
            continue
        names.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            names += key_paths(value, f"{prefix}{key}.")
    return names


# --- Hydra ------------------------------------------------------------------------------------------------------------


def _checked_folder(config_dir: str | Path | None) -> Path | None:
    if config_dir is None:
        return None
    folder = Path(config_dir).resolve()
    if not any((folder / group).is_dir() for group in GROUPS):
        raise ConfigError(f"--config-dir {config_dir}: no such folder, or none of {', '.join(GROUPS)} in it")
    return folder


def _run_hydra(overrides: Sequence[str], extra: Path | None) -> DictConfig:
    search = [f"hydra.searchpath=['{extra.as_uri()}']"] if extra else []
    try:
        return hydra_compose("config", overrides=[*overrides, *search])
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"configuration error: {_one_line(error)}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"a configuration file is not YAML: {' '.join(str(error).split())}") from None


def _unresolved(config: DictConfig) -> dict[str, Any]:
    tree = OmegaConf.to_container(config, resolve=False)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def resolve(config: DictConfig) -> dict[str, Any]:
    """Plain values for every interpolation. Only `oc.select` may compute one: a clock, a random number or the
    environment would give the same command another meaning tomorrow."""
    for name, value in leaves(_unresolved(config)):
        resolver = re.search(r"\$\{\s*([\w.]+)\s*:", value) if isinstance(value, str) else None
        if resolver and resolver[1] != "oc.select":
            raise ConfigError(f"{name}: the resolver ${{{resolver[1]}:...}} cannot be used in a run's configuration")
    try:
        tree = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        key = error.full_key
        raise ConfigError(f"{key} has no value; set {key}=...") from None
    except OmegaConfBaseException as error:
        where = f"{error.full_key}: " if error.full_key else ""
        raise ConfigError(f"{where}{_one_line(error)}") from None
    assert isinstance(tree, dict)
    return {str(group): _without_tables(value) for group, value in tree.items()}


def _without_tables(group: Any) -> Any:
    if not isinstance(group, dict):
        return group
    return {key: value for key, value in group.items() if not str(key).startswith("by_")}


def leaves(tree: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        return [
            leaf for key, value in tree.items() for leaf in leaves(value, f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(tree, list):
        return [leaf for i, value in enumerate(tree) for leaf in leaves(value, f"{prefix}[{i}]")]
    return [(prefix, tree)]


def _one_line(error: BaseException) -> str:
    """The first line of a message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


# --- checks across keys -----------------------------------------------------------------------------------------------


def _numbers_like(config: dict[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Whole numbers become floats where the YAML has a float, in the benchmark's free options: `1` is `1.0`."""
    defaults = base["benchmark"].get("options") or {}
    options = config["benchmark"].get("options")
    if isinstance(options, dict):
        for key, value in options.items():
            if isinstance(defaults.get(key), float) and type(value) is int:
                options[key] = float(value)
    return config


def _checked_options(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """A method's own options, checked by its own options class; {} for the policy as it is."""
    name, options = algorithm["name"], algorithm["options"]
    if not isinstance(options, dict):
        raise ConfigError(f"algorithm.options must be a mapping of keys to values, got {options!r}")
    return _estimator_options(name, options) if algorithm["objective"] else _evaluated_options(name, options)


def _evaluated_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a method that trains nothing: a prompting baseline's own, none of any other's."""
    from algorithms.prompting import OPTIONS

    if name in OPTIONS:
        return _built_options(name, OPTIONS[name], list(OPTIONS[name].__dataclass_fields__), options)
    if options:
        raise ConfigError(f"algorithm.options: {name!r} is evaluated only and takes no options")
    return {}


def _estimator_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    from algorithms import COMMON_OPTIONS, estimators, options_type

    try:
        kind = options_type(name)
    except ValueError:
        known = estimators()
        hint = f"{nearest(name, known)} (known: {', '.join(known)})"
        raise ConfigError(f"algorithm.name: no estimator {name!r} is registered{hint}") from None
    for key in options:
        if key in COMMON_OPTIONS:
            raise ConfigError(f"'algorithm.options.{key}' is shared by all methods; set protocol.{key} instead")
    names = [key for key in kind.__dataclass_fields__ if key not in COMMON_OPTIONS]
    return _built_options(name, kind, names, options)


def _built_options(name: str, kind: Any, names: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    for key in options:
        if key not in names:
            raise ConfigError(f"unknown key 'algorithm.options.{key}'{nearest(key, names)}"
                              f" ({name} takes: {', '.join(names) or 'none'})")  # fmt: skip
    try:
        built = kind(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"algorithm.options: {_one_line(error)}") from None
    return {key: _strict(getattr(built, key)) for key in names if key in options}


def _strict(value: Any) -> Any:
    """JSON has no infinity; the options classes read it back from text."""
    return str(value) if isinstance(value, float) and abs(value) == float("inf") else value


def _check_sums(config: Mapping[str, Any]) -> None:
    """Values that are fine alone but not together."""
    model, protocol = config["model"], config["protocol"]
    _check_generation(model, config["resources"]["generation"])
    if model["kind"] == "tiny" and model["hidden_size"] % model["heads"]:
        raise ConfigError(
            f"model.hidden_size {model['hidden_size']} must be a multiple of model.heads {model['heads']}"
        )
    if protocol["group_size"] < 2 and config["algorithm"]["objective"] is not None:
        raise ConfigError(
            "protocol.group_size must be >= 2 to train: a trajectory is compared with the others of its group"
        )
    count = protocol["train"]["count"]
    if count is not None and count < protocol["tasks_per_update"]:
        raise ConfigError(
            f"protocol.train.count {count} is smaller than protocol.tasks_per_update {protocol['tasks_per_update']}"
        )


def _check_generation(model: Mapping[str, Any], generation: Mapping[str, Any]) -> None:
    if generation["engine"] == "transformers":
        return
    if model["kind"] == "tiny":
        raise ConfigError("resources.generation.engine=vllm cannot run the tiny policy; use transformers")
    if (generation["mode"] == "server") != (generation["server"] is not None):
        raise ConfigError(
            "resources.generation.server is the url of a vLLM server, given with resources.generation.mode=server only"
        )
    if generation["mode"] == "server" and (generation["sleep"] or generation["tensor_parallel"] > 1):
        raise ConfigError("resources.generation: sleep and tensor_parallel belong to mode=colocate")


def _check_prompted(config: Mapping[str, Any]) -> None:
    from algorithms.baselines import METHODS

    method, model = config["algorithm"]["name"], config["model"]
    if method in METHODS and model["kind"] == "tiny":
        raise ConfigError(
            f"algorithm={method} prompts a chat model, and model={model['name']} is none (it reads menus of words); "
            "use model=smollm2 or model=hub, or algorithm=initial for the policy as it is"
        )


def _without(tree: Mapping[str, Any], path: Sequence[str], default: Any) -> dict[str, Any]:
    """The tree without the leaf at `path` if it holds `default`."""
    head, rest = path[0], path[1:]
    if head not in tree:
        return dict(tree)
    if not rest:
        return {key: value for key, value in tree.items() if key != head or value != default}
    return {key: _without(value, rest, default) if key == head else value for key, value in tree.items()}
