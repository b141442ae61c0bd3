"""Synthetic run folders with known numbers, written as a run writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

KINDS = ("pick", "look", "clean", "heat", "cool", "pick2")


def default_config(algorithm: str, seed: int) -> dict[str, Any]:
    return {
        "algorithm": {"name": algorithm, "objective": "ppo", "options": {}},
        "benchmark": {"name": "alfworld", "options": {"data": "synth-small"}},
        "model": {"name": "tiny", "decoding": "constrained"},
        "protocol": {"name": "quick", "updates": 4, "horizon": 15},
        "resources": {"threads": 1},
        "seed": seed,
    }


class RunWriter:
    """One run folder. Every method writes one kind of file and returns the writer."""

    def __init__(self, root: Path, algorithm: str, /, seed: int = 1, **config: Any) -> None:
        self.path = root / f"{algorithm}-{seed}"
        self.path.mkdir(parents=True)
        merged = default_config(algorithm, seed)
        for group, values in config.items():
            merged[group] = {**merged[group], **values}
        (self.path / "config.yaml").write_text(yaml.safe_dump(merged))

    def attempt(
        self, success: Sequence[float] = (), first: int = 1, commit: str = "c0ffee", tail: str = "", **env: Any
    ) -> RunWriter:
        """An attempt whose update `first + i` had rollout success `success[i]`; `tail` ends its metrics file."""
        number = len(list((self.path / "attempts").glob("*"))) + 1
        folder = self.path / "attempts" / f"{number:04d}"
        folder.mkdir(parents=True)
        record = {"commit": commit, "host": "elsewhere", "pid": 1} | env
        (folder / "env.json").write_text(json.dumps(record))
        lines = [json.dumps(metrics_row(first + i, value)) + "\n" for i, value in enumerate(success)]
        (folder / "metrics.jsonl").write_text("".join(lines) + tail)
        return self

    def evaluation(
        self, won: Sequence[bool], name: str = "training_games", when: str = "after", **head: Any
    ) -> RunWriter:
        """Two repeats of `len(won) // 2` tasks; episode i took i + 1 steps; kinds in turn."""
        folder = self.path / "evaluations"
        folder.mkdir(exist_ok=True)
        header = {
            "list": name, "when": when, "list_hash": f"hash-{name}", "count": len(won) // 2, "repeats": 2,
            "temperature": 1.0, "decoding": "constrained", "label": "synth-v1", "horizon": 15,
        } | head  # fmt: skip
        rows = [
            {
                "task": f"game-{i // 2}", "kind": KINDS[(i // 2) % 6], "repeat": i % 2, "success": bool(value),
                "score": 10.0 * value, "steps": i + 1, "format_invalid": 0, "inadmissible": 0,
            }
            for i, value in enumerate(won)
        ]  # fmt: skip
        (folder / f"{name}-{when}.json").write_text(json.dumps(header))
        (folder / f"{name}-{when}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return self

    def done(self) -> RunWriter:
        (self.path / "result.json").write_text(json.dumps({"schema": 1}))
        return self

    def failed(self, message: str = "out of memory", update: int | None = 3) -> RunWriter:
        record = {"class": "RuntimeError", "message": message, "attempt": 1, "update": update}
        (self.path / "error.json").write_text(json.dumps(record))
        return self


def metrics_row(update: int, success: float) -> dict[str, Any]:
    """Stages of 1, 0.02, 0.5 and 2 seconds; generation and environment lie in the first."""
    return {
        "update": update, "episodes": 64, "success": success, "turns": 9.0, "timing/rollout": 1.0,
        "timing/generation": 0.75, "timing/environment": 0.25, "timing/advantage": 0.02, "timing/old_logprob": 0.5,
        "timing/update": 2.0,
    }  # fmt: skip


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., RunWriter]:
    """`new_run(algorithm, seed, **config groups)` makes a run folder under tmp_path / "runs"."""

    def make(algorithm: str, /, seed: int = 1, **config: Any) -> RunWriter:
        return RunWriter(tmp_path / "runs", algorithm, seed, **config)

    return make


@pytest.fixture
def finished_run(new_run: Callable[..., RunWriter]) -> Callable[..., RunWriter]:
    """`finished_run(algorithm, seed, solved)`: done, with the first `solved` of 12 episodes of both lists solved."""

    def make(algorithm: str, /, seed: int = 1, solved: int = 6, **config: Any) -> RunWriter:
        won = [i < solved for i in range(12)]
        run = new_run(algorithm, seed, **config).attempt([0.25, 0.5, 0.5, 0.75])
        return run.evaluation(won).evaluation(won, "unseen_games").done()

    return make
