"""What would fail late is refused early: data, evaluation lists, device-independent resources, before any work.

Imports no torch, so that a dry run can afford it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeps import extras
from sweeps.schema import ConfigError, nearest

# names that transformers' `report_to` takes -> the module each needs
_TRACKERS = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow", "trackio": "trackio"}


def check(config: Mapping[str, Any], here: bool = True) -> None:
    """ConfigError, in one line, for a configuration whose run would fail after it began: a missing package, unknown
    benchmark options, data that is not there, a task list that cannot be made. Without `here` the run will be on
    another machine, whose memory and servers cannot be seen from this one."""
    extras.require(config)
    _check_trackers(config["resources"]["report_to"])
    _check_model(config["model"])
    _check_data(config, here)


def _check_trackers(names: list[str]) -> None:
    for name in names:
        if name not in _TRACKERS:
            known = ", ".join(_TRACKERS)
            raise ConfigError(
                f"resources.report_to: {name!r} does not exist{nearest(name, _TRACKERS)} (known: {known})"
            )
        if importlib.util.find_spec(_TRACKERS[name]) is None:
            raise ConfigError(f"resources.report_to={name} needs a package: pip install {_TRACKERS[name]}")


def _check_model(model: Mapping[str, Any]) -> None:
    path = str(model.get("path") or "")
    if path.startswith(("/", ".", "~")) and not Path(path).is_dir():
        raise ConfigError(f"model.path={path}: no such folder (give a folder with a model, or a hub name)")
    if path and model["revision"] is not None and Path(path).is_dir():
        raise ConfigError(f"model.revision={model['revision']} is of a hub name, and model.path={path} is a folder")


def _check_data(config: Mapping[str, Any], here: bool) -> None:
    import benchmarks
    from algorithms import prompting

    section, protocol = config["benchmark"], config["protocol"]
    try:
        benchmark = benchmarks.load(section["name"], success_reward=section["success_reward"], **section["options"])
        if config["model"]["kind"] == "tiny":
            benchmark.lexicon()
        _check_services(benchmark, here)
        if protocol["state_matching"] == "embedding":
            _check_embedding(section["name"], benchmark)
    except ConfigError:
        raise
    except (ValueError, TypeError, OSError) as error:
        raise _one_line("benchmark.options", error) from None
    lists = {f"protocol.evaluation.lists.{name}": part for name, part in protocol["evaluation"]["lists"].items()}
    if config["algorithm"]["objective"] is not None:
        lists = {"protocol.train": protocol["train"], **lists}
    for name, part in lists.items():
        try:
            tasks = benchmark.task_set(part["split"], part["count"], part["offset"])
        except (ValueError, OSError) as error:
            raise _one_line(name, error) from None
        if name == "protocol.train" and len(tasks) < protocol["tasks_per_update"]:
            raise ConfigError(
                f"protocol.train holds {len(tasks)} tasks, fewer than protocol.tasks_per_update="
                f"{protocol['tasks_per_update']}; raise protocol.train.count"
            )
    try:
        prompting.check(benchmark, config)
    except ValueError as error:
        raise _one_line("algorithm.options", error) from None


def _check_services(benchmark: Any, here: bool) -> None:
    """What a benchmark needs beside its data (a server, a model) answers, where it needs any."""
    check = getattr(benchmark, "check", None)
    if check is not None:
        check(here)


def _check_embedding(name: str, benchmark: Any) -> None:
    """A benchmark that embeds states has its model of sentences at hand."""
    if not hasattr(benchmark, "embed"):
        raise ConfigError(f"protocol.state_matching=embedding: {name} has no model of sentences; use exact")
    benchmark.check_embed()


def _one_line(where: str, error: Exception) -> ConfigError:
    return ConfigError(f"{where}: {' '.join(str(error).split())}")
