"""Speed of the sweeps: `python -m sweeps.benchmark [--cells 2000]`.

Prints seconds to plan a grid (against composing its cells one by one), to submit it (overhead a cell, with the real
files and a Slurm whose commands answer at once) and to read its status, each as the best of three.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeps import config, grid, plan, states, status, submission, submit
from sweeps.store import RunFolder

METHODS = ("grpo", "gigpo", "graphgpo", "g2po", "graphhca", "graft")
MODELS = ("tiny", "qwen2.5_1.5b", "qwen2.5_7b")
ONE_BY_ONE = 10

_SBATCH = """#!/bin/sh
echo "Submitted batch job 1"
"""
_SCONTROL = """#!/bin/sh
[ "$1" = show ] && echo "MaxArraySize = 1001"
exit 0
"""
_SQUEUE = """#!/bin/sh
i=0
[ -e "{mark}" ] || exit 0
while [ $i -lt {cells} ]; do echo "1_$i|PD|Priority|creditbench"; i=$((i + 1)); done
"""


def big_grid(cells: int) -> grid.Grid:
    """A grid of at least this many cells: methods x models x learning rates x seeds."""
    seeds = -(-cells // (len(METHODS) * len(MODELS) * 2))
    axes = {
        "algorithm": list(METHODS), "model": list(MODELS), "protocol.learning_rate": [1e-6, 2e-6],
        "seed": list(range(seeds)),
    }  # fmt: skip
    return grid.parse("benchmark", {"axes": axes})


def best(call: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """(seconds of the quickest call, its result)."""
    quickest, result = float("inf"), None
    for _ in range(times):
        began = time.perf_counter()
        result = call()
        quickest = min(quickest, time.perf_counter() - began)
    return quickest, result


def stand_in_slurm(folder: Path, cells: int) -> Path:
    """Commands that answer as Slurm would, at once; `folder`/mark makes the queue full."""
    folder.mkdir()
    texts = {"sbatch": _SBATCH, "scontrol": _SCONTROL, "srun": "#!/bin/sh\n",
             "squeue": _SQUEUE.format(mark=folder / "mark", cells=cells)}  # fmt: skip
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


def finish(out: Path, ids: list[str]) -> None:
    """Half of the cells are done, so that status reads results as well as the queue."""
    for run in ids[::2]:
        with RunFolder(out / "runs" / run).start_attempt() as attempt:
            attempt.log({"update": 1})
        RunFolder(out / "runs" / run).write_result({"seconds": 1.0})


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="where the store is made (default: a temporary folder)")
    chosen = big_grid(parser.parse_args(arguments).cells)
    folder = parser.parse_args(arguments).folder
    with tempfile.TemporaryDirectory(dir=folder) as work:
        measure(chosen, Path(work))
    return 0


def measure(chosen: grid.Grid, work: Path) -> None:
    """Plan, submit and status of one grid in a store below `work`."""
    seconds, planned = best(lambda: plan.make(chosen))
    count = len(planned.cells)
    print(f"plan       {count} cells in {seconds:.2f} s")
    sample = [f"{key}={value}" for key, value in chosen.cells()[0].values.items()]
    one, _ = best(lambda: config.compose(sample), ONE_BY_ONE)
    alone = one * count
    print(f"  one by one {one * 1000:.0f} ms a cell, {alone:.0f} s in all, {alone / seconds:.0f} times as long")
    commands = stand_in_slurm(work / "bin", count)
    os.environ["PATH"] = f"{commands}{os.pathsep}{os.environ['PATH']}"
    out = work / "out"
    options = submit.Options(allow_dirty=True, snapshot=False)
    seconds, report = best(lambda: submit.to_slurm(out, planned, options, lambda _: None), 1)
    print(f"submit     {report.cells} cells in {seconds:.2f} s: {1000 * seconds / count:.2f} ms a cell")
    (commands / "mark").touch()
    finish(out, list(planned.runs))
    seconds, _ = best(lambda: status.render(view(out)))
    print(f"status     {count} cells in {seconds:.2f} s")


def view(out: Path) -> status.View:
    """What `status` reads and shows."""
    record = plan.read_record(out, "benchmark")
    assert record is not None
    known = states.read_states(out, [cell.id for cell in record.cells])
    done = [cell.id for cell in record.cells if known[cell.id].state == "done"]
    notes = [str(len(submit.commits(out, done))), str(len(submission.unsettled(out)))]
    return status.View("benchmark", record.table, record.cells, known, notes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
