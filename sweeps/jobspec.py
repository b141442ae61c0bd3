"""What a cell asks of a scheduler: resources by rule, checked, in the words of sbatch.

Merged in this order, later ones win: the defaults here, a cluster profile (`sweeps/conf/cluster/NAME.yaml` or a file of
yours), the first rule of the grid that matches the cell, `--job key=value`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sweeps.schema import ConfigError, nearest

MAX_MINUTES = 60 * 24 * 30
LAUNCHERS = ("ddp", "fsdp", "deepspeed")


@dataclass(frozen=True)
class JobSpec:
    """Resources of one job. None is left to the site. `time` is in minutes, `lead` and `grace` in seconds.

    gpus            a node; gres is for sites that want another spelling, e.g. "gpu:a100:4"
    gpu_memory      GiB of one GPU: a cell that cannot fit is refused before it is submitted
    launch          how more than one process is started: ddp (torchrun), fsdp or deepspeed (accelerate)
    processes       a node; default: one a GPU when launched, else one
    pack, parallel  cells in one job, and how many of them at a time (default: all)
    lead            the warning (SIGUSR1) before the time limit; longer than an update. Default: 300, or a fifth
                    of a time limit below 25 minutes
    max_requeues    how often a job that was warned or preempted puts itself into the queue again
    setup           shell lines before the program, e.g. "module load cuda"
    extra           further sbatch flags, without the dashes
    """

    time: int = 60
    nodes: int = 1
    cpus: int = 1
    gpus: int = 0
    gres: str | None = None
    gpu_memory: int | None = None
    mem: str | None = None
    mem_per_cpu: str | None = None
    mem_per_gpu: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    launch: str | None = None
    processes: int | None = None
    pack: int = 1
    parallel: int | None = None
    lead: int = 300
    max_requeues: int = 20
    setup: tuple[str, ...] = ()
    extra: tuple[tuple[str, Any], ...] = ()

    @property
    def world(self) -> int:
        """Number of processes that train one cell together."""
        return self.nodes * self.per_node

    @property
    def per_node(self) -> int:
        """Processes of one cell on one node."""
        return self.processes or (max(1, self.gpus) if self.launch else 1)

    @property
    def has_gpus(self) -> bool:
        """Whether a GPU is asked for."""
        return bool(self.gpus or _gres_gpus(self.gres))

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of one job that uses its whole time limit."""
        return self.time / 60 * self.nodes * (self.gpus or _gres_gpus(self.gres))

    @property
    def cpu_hours(self) -> float:
        """CPU-hours of one job that uses its whole time limit."""
        return self.time / 60 * self.nodes * self.cpus


_DEFAULT = JobSpec()
_FIELDS = {field.name: field for field in dataclasses.fields(JobSpec)}
_WHOLE = {
    "nodes": 1, "cpus": 1, "gpus": 0, "gpu_memory": 1, "processes": 1, "pack": 1, "parallel": 1, "lead": 0,
    "max_requeues": 0,
}  # fmt: skip
_OPTIONAL = {name for name, field in _FIELDS.items() if field.default is None}


def make(*layers: Mapping[str, Any], where: str = "resources") -> JobSpec:
    """The job of merged layers. ConfigError for an unknown key, a wrong value, or keys that exclude each other."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update(layer)
    spec = JobSpec(**{key: _checked(f"{where}.{key}", key, value, where) for key, value in merged.items()})
    if "lead" not in merged:
        spec = dataclasses.replace(spec, lead=min(_DEFAULT.lead, spec.time * 60 // 5))
    _check_together(spec, where)
    return spec


def _checked(name: str, key: str, value: Any, where: str) -> Any:
    if key not in _FIELDS:
        raise ConfigError(f"unknown key {name!r}{nearest(key, _FIELDS)} ({where} takes: {', '.join(_FIELDS)})")
    if value is None and key in _OPTIONAL:
        return None
    if key == "time":
        return minutes(name, value)
    if key in _WHOLE:
        return _whole(name, value, _WHOLE[key])
    if key == "setup":
        return _lines(name, value)
    if key == "extra":
        return _flags(name, value)
    if key == "launch" and value not in LAUNCHERS:
        raise ConfigError(
            f"{name} must be one of {', '.join(LAUNCHERS)}, got {value!r}{nearest(str(value), LAUNCHERS)}"
        )
    if isinstance(value, bool) or not isinstance(value, (str, int)) or "\n" in str(value):
        raise ConfigError(f"{name} must be one line of text, got {value!r}")
    return str(value)


def minutes(name: str, value: Any) -> int:
    """Whole minutes of a time limit: a number, or text as sbatch takes it (mm, h:mm:ss, d-h:mm:ss), rounded up."""
    if isinstance(value, str):
        match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)|(\d+)", value)
        if not match:
            raise ConfigError(f"{name} must be minutes or 'h:mm:ss' or 'd-hh:mm:ss', got {value!r}")
        days, hours, minute, second, plain = (int(part or 0) for part in match.groups())
        value = plain or (days * 24 + hours) * 60 + minute + (1 if second else 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_MINUTES:
        raise ConfigError(f"{name} must be 1 to {MAX_MINUTES} minutes, got {value!r} (write h:mm:ss in quotes)")
    return value


def _whole(name: str, value: Any, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(f"{name} must be a whole number >= {low}, got {value!r}")
    return value


def _lines(name: str, value: Any) -> tuple[str, ...]:
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, (list, tuple)) or not all(isinstance(line, str) for line in lines):
        raise ConfigError(f"{name} must be a list of shell lines, got {value!r}")
    return tuple(lines)


def _flags(name: str, value: Any) -> tuple[tuple[str, Any], ...]:
    if not isinstance(value, Mapping) or not all(isinstance(item, (str, int, float, bool)) for item in value.values()):
        raise ConfigError(f"{name} must be a mapping of sbatch flags to values, got {value!r}")
    ours = (
        "array",
        "hold",
        "output",
        "error",
        "signal",
        "job-name",
        "requeue",
        *(_sbatch_name(key) for key in _FIELDS),
    )
    for key in value:
        if _sbatch_name(str(key)) in ours:
            raise ConfigError(f"{name}.{key}: {key} is set by creditbench; use the key of resources of that name")
    return tuple(sorted((_sbatch_name(str(key)), item) for key, item in value.items()))


def _sbatch_name(key: str) -> str:
    return key.lstrip("-").replace("_", "-")


def _check_together(spec: JobSpec, where: str) -> None:
    memory = [name for name in ("mem", "mem_per_cpu", "mem_per_gpu") if getattr(spec, name)]
    if len(memory) > 1:
        raise ConfigError(f"{where}: {' and '.join(memory)} exclude each other; give one")
    if spec.gpus and spec.gres:
        raise ConfigError(f"{where}: gpus and gres exclude each other; give one")
    if spec.world > 1 and not spec.launch:
        raise ConfigError(f"{where}: {spec.world} processes need launch: {', '.join(LAUNCHERS)}")
    if spec.pack > 1 and (spec.nodes > 1 or spec.launch):
        raise ConfigError(f"{where}: pack is for cells of one process on one node")
    if spec.lead >= spec.time * 60:
        raise ConfigError(f"{where}: lead {spec.lead} s must be shorter than time {spec.time} min")


def _gres_gpus(gres: str | None) -> int:
    match = re.search(r"(?:^|,)gpu(?::[A-Za-z][^:,]*)?(?::(\d+))?", gres or "")
    return int(match[1] or 1) if match else 0


def sbatch_flags(spec: JobSpec) -> dict[str, Any]:
    """What sbatch is told of these resources; nothing that is not set."""
    named = {
        "partition": spec.partition, "account": spec.account, "qos": spec.qos, "constraint": spec.constraint,
        "exclude": spec.exclude, "gres": spec.gres, "mem": spec.mem, "mem-per-cpu": spec.mem_per_cpu,
        "mem-per-gpu": spec.mem_per_gpu, "gpus-per-node": spec.gpus or None,
    }  # fmt: skip
    fixed = {"time": spec.time, "nodes": spec.nodes, "ntasks-per-node": 1, "cpus-per-task": spec.cpus}
    return {**fixed, **{key: value for key, value in named.items() if value is not None}, **dict(spec.extra)}


def describe(spec: JobSpec) -> str:
    """What differs from the defaults, in one line."""
    changed = [
        f"{name}={getattr(spec, name)}"
        for name in _FIELDS
        if name not in ("setup", "extra") and getattr(spec, name) != getattr(_DEFAULT, name)
    ]
    changed += [f"{key}={value}" for key, value in spec.extra]
    return " ".join(["time=" + clock(spec.time), *[text for text in changed if not text.startswith("time=")]])


def clock(minutes_: int) -> str:
    """`h:mm` of minutes."""
    return f"{minutes_ // 60}:{minutes_ % 60:02d}"


def profile(name: str | None, folders: Sequence[Path]) -> dict[str, Any]:
    """A cluster profile: {} without a name. `name` is one of those in `folders`, or a file."""
    if name is None:
        return {}
    path = next((p for p in [Path(name), *(folder / f"{name}.yaml" for folder in folders)] if p.is_file()), None)
    if path is None:
        known = sorted({p.stem for folder in folders for p in folder.glob("*.yaml")})
        raise ConfigError(
            f"--cluster {name!r}: no such profile or file{nearest(name, known)} (known: {', '.join(known)})"
        )
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold keys of a job, e.g. partition: gpu")
    return value


def parse_pairs(texts: Sequence[str]) -> dict[str, Any]:
    """`--job key=value` texts as a mapping; values are YAML, except times, which stay text."""
    pairs: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--job {text!r} must be key=value, e.g. partition=gpu")
        pairs[key] = value if key == "time" else yaml.safe_load(value)
    return pairs
