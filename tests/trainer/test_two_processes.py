"""Groups spread over two processes: the advantages and the gradient of one process that saw everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_gradients import by_hand, make_policy

from algorithms import RolloutBatch, estimate

HERE = Path(__file__).parent


def run_two(folder, goal):
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(HERE / "two_processes.py"), str(folder), goal,
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("goal", ["ppo", "grpo_c"])
def test_two_processes_equal_one(tmp_path, goal):
    ranks = run_two(tmp_path, goal)
    counts = [len(rank["rows"]) for rank in ranks]
    columns = {name: [v for rank in ranks for v in rank["columns"][name]] for name in ranks[0]["columns"]}
    # three groups of four over two processes of six episodes: the middle group is split
    owners = [set(rank["columns"]["group"]) for rank in ranks]
    assert owners[0] & owners[1]
    batch = RolloutBatch.from_columns(**columns, success_reward=10.0)
    alone = estimate("gigpo", batch, invalid_action_penalty=0.1).advantages
    together = [a for rank in ranks for a in rank["advantages"]]
    assert together == pytest.approx(alone.tolist(), abs=1e-5)
    assert max(abs(a) for a in together) > 0.1
    rows = [(p, c, a) for rank in ranks for (p, c), a in zip(rank["rows"], rank["advantages"], strict=True)]
    value, gradients, _ = by_hand(make_policy().model, rows, goal)
    scale = max(g.abs().max().item() for g in gradients.values())
    for rank in ranks:
        for name, gradient in gradients.items():
            theirs = torch.tensor(rank["gradients"][name]).view_as(gradient)
            assert (theirs - gradient).abs().max() < 1e-4 * scale + 1e-7, name
    assert ranks[0]["losses"][0] == pytest.approx(value, abs=1e-4)
    assert ranks[0]["logged_rows"] == [sum(counts)]
