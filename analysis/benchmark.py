"""Seconds that tables and figures take: `python -m analysis.benchmark [--runs 1000] [--updates 150]`.

Writes synthetic runs (GRAFT Table 1: two models, two benchmarks, six methods, many seeds), then measures the commands
as a user starts them, each in a process of its own: cold (no cache), warm (Parquet cache), after one run has changed.
The simple way, for comparison: every file with json.loads into one frame, in a process of its own as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.figure_catalog import figure_names
from analysis.spec import read_spec
from analysis.synthetic import fill_table

TABLE = "graft_table1"
_SIMPLE = """
import json, sys, pathlib, yaml, pandas as pd
root = pathlib.Path(sys.argv[1])
configs = [yaml.safe_load(path.read_text()) for path in root.glob("runs/*/config.yaml")]
lines = lambda pattern: [json.loads(line) for path in root.glob(pattern) for line in path.read_text().splitlines()]
metrics = pd.DataFrame(lines("runs/*/attempts/*/metrics.jsonl"))
episodes = pd.DataFrame(lines("runs/*/evaluations/*/*.jsonl"))
print(len(configs), len(metrics), len(episodes))
"""


def main() -> None:
    """Write the runs, measure, print one line a measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="at least")
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--tasks", type=int, default=12, help="episodes a kind and evaluation")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        count = _write(root, arguments.runs, arguments.updates, arguments.tasks)
        print(f"{count} runs of {arguments.updates} updates, {_size(root) / 2**20:.0f} MiB in run folders")
        measure(root)


def _write(root: Path, runs: int, updates: int, tasks: int) -> int:
    spec = read_spec(TABLE)
    cells = len(spec.panels) * sum(row.where is not None for row in spec.rows) * 2
    seeds = -(-runs // cells)  # no fewer runs than asked for
    spec = replace(spec, seeds=tuple(range(1, seeds + 1)))
    fill_table(root, spec, np.random.default_rng(0), spec.seeds, tasks, updates)
    return cells * seeds


def _size(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def measure(root: Path) -> None:
    """Print what the commands take on the runs below `root`."""
    table = ["table", TABLE, "--out", str(root), "--format", "csv"]
    simple = _seconds([sys.executable, "-c", _SIMPLE, str(root)])
    print(f"simple way, reading only     {simple:6.2f} s")
    for name in ("cold", "warm"):
        spent = _command(table)
        print(f"table {TABLE}, {name:4}     {spent:6.2f} s   {simple / spent:5.1f} times as fast")
    newest = next((root / "runs").glob("*/result.json"))
    os.utime(newest)
    print(f"table, one run changed       {_command(table):6.2f} s")
    model = ["--where", "model=qwen2.5_1.5b", "--where", "benchmark=alfworld", "--format", "png,pdf,svg"]
    start = _command(["figure"])
    print(f"start of the program         {start:6.2f} s")
    for name in figure_names():
        spent = _command(["figure", name, "--out", str(root), "--save", str(root / "figures"), *model])
        print(f"figure {name:28}{spent:6.2f} s")


def _command(arguments: list[str]) -> float:
    return _seconds([sys.executable, "-m", "sweeps.cli", *arguments])


def _seconds(command: list[str]) -> float:
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 2):  # 2: incomplete
        raise SystemExit(json.dumps(command) + "\n" + done.stderr)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
