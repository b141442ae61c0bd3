"""Run folders with known truth, written as a run writes them: the proof of tables and figures without a GPU.

`fill_table` writes a run for every cell of a table's YAML and returns the numbers that the table must then show,
computed from the drawn outcomes with Python's own arithmetic (columns of the log are jittered and have no truth).
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from analysis.spec import ColumnSpec, Condition, PanelSpec, RowSpec, TableSpec

KINDS: Mapping[str, tuple[str, ...]] = {
    "alfworld": ("pick", "look", "clean", "heat", "cool", "pick2"),
    "webshop": ("",),
    "search_qa": ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"),
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "graft": {"gamma": 0.99, "gae_lambda": 0.95, "sinks": "merged", "normalize": True},
    "graphhca": {"gamma": 0.95, "floor": 0.01, "step_weight": 1.0, "episode_weight": 1.0, "power": 1.0},
    "g2po": {
        "gamma": 0.95, "step_weight": 1.0, "node_centric": True, "edge_centric": True, "group_aggregation": True
    },
    "gigpo": {"gamma": 0.95, "step_weight": 1.0},
    "graphgpo": {"omega": 0.1, "step_weight": 1.0, "episode_weight": 1.0},
}  # fmt: skip
COMMIT = "5eed" * 10
_HISTORY = (0.25, 0.5, 0.75)  # moments of training that are evaluated, as shares of all updates


@dataclass(frozen=True)
class Episode:
    """One evaluated episode."""

    kind: str
    success: bool
    score: float
    steps: int


POINTS: Mapping[str, Callable[[Episode], float]] = {  # what an episode adds to the mean that a metric is
    "success": lambda one: 100.0 * one.success,
    "score": lambda one: 10.0 * one.success,
    "episode.task_score": lambda one: one.score,
    "turns": lambda one: float(one.steps),
}


@dataclass
class SyntheticRun:
    """A run to be written. `evaluations` are episodes by (list, moment); tasks are numbered in order."""

    config: dict[str, Any]
    updates: int = 20
    state: str = "done"
    commit: str = COMMIT
    evaluations: dict[tuple[str, str], list[Episode]] = field(default_factory=dict)
    success: list[float] = field(default_factory=list)  # of the rollouts of each update
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Hash of the config but for resources, as a run's id is."""
        science = {key: value for key, value in self.config.items() if key != "resources"}
        return hashlib.sha256(json.dumps(science, sort_keys=True, default=str).encode()).hexdigest()[:16]


def make_config(algorithm: str, seed: int, benchmark: str = "alfworld", **keys: Any) -> dict[str, Any]:
    """A run's config; `keys` are dotted keys with "." written as "__" or given in a mapping by `with_settings`."""
    config = {
        "algorithm": {"name": algorithm, "objective": "grpo_c" if algorithm == "graft" else "ppo",
                      "options": dict(DEFAULTS.get(algorithm, {}))},
        "benchmark": {"name": benchmark, "success_reward": 10.0, "options": {"data": "synthetic"}},
        "model": {"name": "tiny", "kind": "tiny", "decoding": "constrained"},
        "protocol": {"name": f"paper_{benchmark}", "updates": 20, "horizon": 15, "group_size": 8,
                     "tasks_per_update": 8, "state_key": "observation"},
        "resources": {"threads": 1},
        "seed": seed,
        "config_schema": 1,
    }  # fmt: skip
    return with_settings(config, {key.replace("__", "."): value for key, value in keys.items()})


def with_settings(config: dict[str, Any], where: Condition) -> dict[str, Any]:
    """The config with dotted keys set so that it meets a table's conditions: of a list the first value, of a mapping
    the value of the config's benchmark."""
    config = json.loads(json.dumps(config))
    for key, wanted in where.items():
        if isinstance(wanted, Mapping):
            if config["benchmark"]["name"] not in wanted:
                continue
            wanted = wanted[config["benchmark"]["name"]]
        if isinstance(wanted, list):
            own = [value for value in wanted if str(value).endswith(config["benchmark"]["name"])]
            wanted = (own or wanted)[0]
        node, *path = [config, *key.split(".")]
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = wanted
    return config


# --- writing ----------------------------------------------------------------------------------------------------------


def write_run(root: Path, run: SyntheticRun, rng: np.random.Generator) -> Path:
    """Write the run folder below root/runs. States: done, failed, interrupted, new, or running (the process that
    writes counts as the run's)."""
    folder = root / "runs" / run.id
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(run.config, sort_keys=False))
    if run.state == "new":
        return folder
    _write_attempt(folder / "attempts" / "0001", run, rng)
    for (name, when), episodes in run.evaluations.items():
        _write_evaluation(folder / "evaluations" / name, name, when, episodes, run.config)
    if run.state == "done":
        _dump(folder / "result.json", {"seconds": 3.5 * run.updates, "data": run.data, "schema": 1})
    elif run.state == "failed":
        error = {"class": "OutOfMemoryError", "message": "out of memory", "attempt": 1, "update": run.updates}
        _dump(folder / "error.json", error)
    return folder


def _write_attempt(folder: Path, run: SyntheticRun, rng: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    live = {"pid": os.getpid(), "host": socket.gethostname()}
    other = {"pid": 2**22 + 1, "host": socket.gethostname(), "ended": 1.0}
    _dump(folder / "env.json", {"commit": run.commit, "dirty": None, **(live if run.state == "running" else other)})
    curve = run.success or list(np.linspace(0.2, 0.8, max(run.updates, 1))[: run.updates])
    rows = [json.dumps(metrics_row(update, value, rng)) for update, value in enumerate(curve, start=1)]
    (folder / "metrics.jsonl").write_text("".join(row + "\n" for row in rows))


def metrics_row(update: int, success: float, rng: np.random.Generator) -> dict[str, Any]:
    """An update's metrics with the columns that the trainer logs. Turns fall as success rises; states are met again
    more often as training goes on."""
    rows, nodes = 900 - 300 * success, 300 - 100 * success
    jitter = float(rng.uniform(0.9, 1.1))
    return {
        "update": update, "loss": 0.01 * jitter, "grad_norm": 0.13 * jitter, "episodes": 64, "rows": rows,
        "success": success, "return": 10 * success, "turns": rows / 64, "invalid_format": 0.02, "inadmissible": 0.05,
        "prompt_tokens": 88.4, "completion_tokens": 5.5, "advantage/rows": rows, "advantage/trajectories": 64,
        "advantage/groups": 8, "advantage/nodes": nodes, "advantage/merge_rate": 1 - nodes / rows,
        "advantage/singleton_groups": 100, "advantage/singleton_fraction": 100 / rows, "advantage/zero_fraction": 0.3,
        "advantage/too_easy_groups": 0.1, "advantage/too_hard_groups": 0.3, "advantage/advantage_std": 0.9,
        "entropy": 0.14 * jitter, "clip_fraction/low": 0.0, "clip_fraction/high": 0.001 * jitter,
        "clip_fraction": 0.001 * jitter,
        "timing/rollout": 1.5 * jitter, "timing/generation": 1.0 * jitter, "timing/environment": 0.4 * jitter,
        "timing/prompts": 0.02 * jitter, "timing/advantage": 0.003 * jitter, "timing/old_logprob": 0.5 * jitter,
        "timing/update": 1.1 * jitter, "lr": 1e-6, "wall": 3.5 * update, "time": 1.8e9 + 3.5 * update,
    }  # fmt: skip


def _write_evaluation(
    folder: Path, name: str, when: str, episodes: Sequence[Episode], config: Mapping[str, Any]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    header = {
        "list": name, "when": when, "list_hash": f"hash-{name}", "split": "valid", "count": len(episodes), "offset": 0,
        "repeats": 1, "temperature": 0.4, "seed": 1000, "decoding": "free", "label": "synthetic-v1",
        "horizon": config["protocol"]["horizon"],
    }  # fmt: skip
    rows = [
        {
            "task": f"task-{number:04d}", "kind": one.kind, "repeat": 0, "success": one.success,
            "score": 10.0 * one.success, "task_score": one.score, "steps": one.steps,
            "format_invalid": 0, "inadmissible": 1,
        }
        for number, one in enumerate(episodes)
    ]  # fmt: skip
    (folder / f"{when}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _dump(folder / f"{when}.json", header)


def _dump(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, allow_nan=False))


# --- a table's runs and its truth -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """What a cell must show: mean, sample std (None with one seed) and n."""

    mean: float
    std: float | None
    seeds: int


def fill_table(
    root: Path,
    spec: TableSpec,
    rng: np.random.Generator,
    seeds: Iterable[int] = (1, 2, 3),
    tasks: int = 12,
    updates: int = 20,
) -> dict[tuple[str, str, str], Truth]:
    """Write one run for each panel, row of ours, benchmark and seed of a table, with random outcomes of `tasks`
    episodes a kind. Returns the truth by (panel title, row label, column key)."""
    truth: dict[tuple[str, str, str], Truth] = {}
    done: dict[str, SyntheticRun] = {}
    for panel in spec.panels:
        for row in spec.rows:
            for benchmark in _benchmarks(spec) if row.where is not None else ():
                cell = [_run(spec, panel, row, benchmark, seed, rng, tasks, updates) for seed in seeds]
                runs = [done.setdefault(run.id, run) for run in cell]  # two rows may be one run
                for column in spec.columns:
                    if column.benchmark in (benchmark, None) and column.metric in POINTS:
                        truth[panel.title, row.label, column.key] = _truth(spec, runs, column)
    for run in done.values():
        write_run(root, run, rng)
    return truth


def _benchmarks(spec: TableSpec) -> list[str]:
    return list(dict.fromkeys(column.benchmark or "alfworld" for column in spec.columns))


def _run(
    spec: TableSpec, panel: PanelSpec, row: RowSpec, benchmark: str, seed: int, rng: np.random.Generator, tasks: int,
    updates: int,
) -> SyntheticRun:  # fmt: skip
    conditions = [spec.where, panel.where, (row.where or ({},))[0]]
    merged: dict[str, Any] = {key: value for condition in conditions for key, value in condition.items()}
    config = make_config(str(merged.get("algorithm.name", "grpo")), seed, benchmark, protocol__updates=updates)
    run = SyntheticRun(with_settings(config, merged), updates)
    name = spec.lists.get(benchmark, spec.lists.get("*", "training_games"))
    moments = [f"update-{int(share * updates):06d}" for share in _HISTORY]
    for when in ("before", *moments, "after"):
        run.evaluations[name, when] = _episodes(benchmark, tasks, rng)
    rates = np.sort(rng.uniform(0.1, 0.9, updates))
    run.success = [round(float(rate), 6) for rate in rates]
    return run


def _episodes(benchmark: str, tasks: int, rng: np.random.Generator) -> list[Episode]:
    """Of each kind `tasks` episodes (a few more of the later kinds, so that pooled and macro means differ)."""
    rate, found = float(rng.uniform(0.2, 0.9)), []
    for place, kind in enumerate(KINDS[benchmark]):
        for _ in range(tasks + 3 * place):
            won = bool(rng.random() < rate)
            score = 1.0 if won else round(float(rng.uniform(0, 0.9)), 3)
            found.append(Episode(kind, won, score, int(rng.integers(3, 15))))
    return found


def _truth(spec: TableSpec, runs: Sequence[SyntheticRun], column: ColumnSpec) -> Truth:
    values = [_value(spec, run, column) for run in runs]
    return Truth(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def _value(spec: TableSpec, run: SyntheticRun, column: ColumnSpec) -> float:
    benchmark = run.config["benchmark"]["name"]
    name = spec.lists.get(benchmark, spec.lists.get("*", "training_games"))
    episodes = run.evaluations[name, _when(run, name, column.when)]
    kinds = column.kinds or tuple(dict.fromkeys(one.kind for one in episodes))
    chosen = [[one for one in episodes if one.kind == kind] for kind in kinds]
    parts = chosen if column.mean == "macro" else [[one for part in chosen for one in part]]
    return statistics.fmean(
        statistics.fmean(column.scale * POINTS[column.metric](one) for one in part) for part in parts
    )


def _when(run: SyntheticRun, name: str, when: str) -> str:
    if when != "best":
        return {"last": "after", "before": "before"}[when]
    trained = [(moment, episodes) for (where, moment), episodes in run.evaluations.items() if where == name]
    rates = {moment: statistics.fmean(one.success for one in episodes) for moment, episodes in trained}
    return max((moment for moment in rates if moment != "before"), key=lambda moment: rates[moment])
