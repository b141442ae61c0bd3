"""Where an update's time goes: `python -m sweeps.overhead_benchmark [--updates 6]`.

Trains with the quick protocol on ALFWorld with the tiny policy, for real, and prints the share of each stage of an
update. What is neither generation, environment nor the model's forward and backward pass is the trainer's overhead.
The first update is left out: it starts the games.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from algorithms.trainer import AgentTrainer
from sweeps import run as runs
from sweeps.config import compose
from sweeps.store import RunFolder

# in the order of an update; those of the work itself, then the trainer's own
WORK = ("environment", "generation", "forward and loss", "backward")
OVERHEAD = ("prompts", "replies", "advantage", "rows", "optimizer", "records", "checkpoint")


class Clock:
    """Seconds by stage. A stage inside another counts as the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside = False

    def wrap(self, owner: Any, name: str, stage: str) -> None:
        """Time a method or function of `owner` as a stage from now on."""
        original: Callable[..., Any] = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            if self._inside:
                return original(*arguments, **options)
            self._inside, started = True, time.perf_counter()
            try:
                return original(*arguments, **options)
            finally:
                self.seconds[stage] += time.perf_counter() - started
                self._inside = False

        setattr(owner, name, timed)


class MeasuredTrainer(AgentTrainer):
    """The trainer with a clock on its stages. `updates` gets (seconds in all, by stage) of each update."""

    updates: list[tuple[float, dict[str, float]]]

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.clock, self.updates = Clock(), []
        pool, policy = self.collector.pool, self.collector.policy
        for owner, name, stage in (
            (pool, "reset", "environment"), (pool, "step", "environment"), (self, "_reply", "generation"),
            (policy, "render", "prompts"), (policy, "read", "replies"), (self, "_rows", "rows"),
            (self, "_microbatches", "rows"), (self, "_score", "forward and loss"),
            (self, "_compute_loss", "forward and loss"), (self.accelerator, "backward", "backward"),
            (self, "_write_rollouts", "records"), (self, "_save_checkpoint", "checkpoint"),
        ):  # fmt: skip
            self.clock.wrap(owner, name, stage)
        self._began = time.perf_counter()

    def create_optimizer(self, *arguments: Any, **options: Any) -> Any:
        optimizer = super().create_optimizer(*arguments, **options)
        self.clock.wrap(optimizer, "step", "optimizer")
        return optimizer

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if "loss" not in logs:
            return
        now = time.perf_counter()
        self.clock.seconds["advantage"] = self._timings["advantage"]
        self.updates.append((now - self._began, dict(self.clock.seconds)))
        self.clock.seconds.clear()
        self._began = now


def measure(method: str, updates: int, overrides: Sequence[str], out: Path) -> tuple[float, dict[str, float]]:
    """(mean seconds of an update, mean seconds by stage) of a method; `rest` is what no stage has. The run, and the
    warm start that all methods share, lie in `out`."""
    kept: list[MeasuredTrainer] = []

    def make(**arguments: Any) -> MeasuredTrainer:
        kept.append(MeasuredTrainer(**arguments))
        return kept[-1]

    chosen = [f"algorithm={method}", f"protocol.updates={updates + 1}", *overrides]
    lists = "protocol.evaluation.lists"  # evaluation is no part of an update
    config = compose([*chosen, *(f"{lists}.{name}.count=1" for name in ("training_games", "unseen_games"))])
    original = runs.AgentTrainer
    runs.AgentTrainer = make  # type: ignore[assignment,misc]
    try:
        runs.run_cell(RunFolder.create(out / "runs", config).path)
    finally:
        runs.AgentTrainer = original  # type: ignore[misc]
    counted = kept[0].updates[1:]
    total = sum(seconds for seconds, _ in counted) / len(counted)
    stages = {name: sum(part.get(name, 0.0) for _, part in counted) / len(counted) for name in (*WORK, *OVERHEAD)}
    return total, {**stages, "rest": total - sum(stages.values())}


def overhead_of(stages: dict[str, float]) -> float:
    """Seconds of an update that are the trainer's own."""
    return sum(seconds for name, seconds in stages.items() if name not in WORK)


def report(method: str, total: float, stages: dict[str, float]) -> str:
    """Seconds and shares as text."""
    rows = [f"{method}: an update takes {total:.3f} s", *(f"  {n:18} {_share(s, total)}" for n, s in stages.items())]
    rows.append(f"  trainer overhead   {_share(overhead_of(stages), total)}   (all but {', '.join(WORK)}; bound 5 %)")
    rows.append(f"  advantage alone    {_share(stages['advantage'], total)}   (bound 0.5 %)")
    return "\n".join(rows)


def _share(seconds: float, total: float) -> str:
    return f"{seconds:7.4f} s {100 * seconds / total:6.2f} %"


def main(arguments: list[str]) -> int:
    """Measure and print; 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=6, help="that are measured (default: %(default)s)")
    parser.add_argument("--methods", default="graft,grpo")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of the run's configuration")
    given = parser.parse_args(arguments)
    broken = False
    with tempfile.TemporaryDirectory() as folder:
        for method in given.methods.split(","):
            total, stages = measure(method, given.updates, given.overrides, Path(folder))
            print(report(method, total, stages), flush=True)
            broken = broken or overhead_of(stages) > 0.05 * total or stages["advantage"] > 0.005 * total
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
