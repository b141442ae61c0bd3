"""Grids on a real Slurm without accounting: cells that end in every way, crashes, edits, preemption, two nodes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from slurm_sandbox import GIT, Store, sandbox, wait_until

from sweeps.store import RunFolder

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def slurm():
    yield from sandbox(27100)


def submitted(store: Store) -> list[list[list[str]]]:
    """Runs of every element of every submission."""
    paths = sorted((store.out / "submissions").glob("*/submission.json"))
    return [json.loads(path.read_text())["tasks"] for path in paths]


def test_resubmission_sends_exactly_the_bad_cells(store):
    store.wish(grpo_1="fail", gigpo_2="die", graft_1="lose")
    store.submit("--filter", "method=grpo,gigpo,graft")
    states = store.settled()
    assert states == {
        **{f"{method}-{seed}": "missing" for method in ("graphgpo", "g2po", "graphhca") for seed in (1, 2)},
        "grpo-1": "failed", "grpo-2": "done", "gigpo-1": "done", "gigpo-2": "failed", "graft-1": "lost",
        "graft-2": "done",
    }  # fmt: skip
    assert store.run("status", "smoke").returncode == 1
    assert "loss is not finite" in store.run("why", "smoke", store.cell("grpo-1")["id"]).stdout
    assert "killed by SIGKILL" in store.cell("gigpo-2")["note"]
    assert "fail in attempt 1" in store.run("logs", "smoke", store.cell("grpo-1")["id"]).stdout
    store.wish()
    bad = {store.cell(name)["id"] for name in ("grpo-1", "gigpo-2", "graft-1")}
    store.submit("--filter", "method=grpo,gigpo,graft")
    assert {run for task in submitted(store)[1] for run in task} == bad
    store.settled()
    assert "nothing to submit" in store.submit("--filter", "method=grpo,gigpo,graft").stdout
    error = json.loads((store.folder("grpo-1") / "attempts" / "0001" / "error.json").read_text())
    assert error["class"] == "ArithmeticError"
    store.submit()
    assert Counter(store.settled().values()) == {"done": 12}
    assert store.run("status", "smoke").returncode == 0
    assert store.run("fsck", "smoke").returncode == 0


def test_cancelled_cells_stay_cancelled_until_retried(store):
    store.wish(grpo_1="hang", grpo_2="hang", gigpo_1="hang")
    store.submit("--filter", "method=grpo,gigpo", "--concurrent", "1")
    store.wait(lambda now: now["grpo-1"] == "running")
    done = store.run("cancel", "smoke", "--filter", "method=grpo")
    assert done.stdout.count("cancelled with job") == 2
    states = store.wait(lambda now: now["grpo-1"] == now["grpo-2"] == "cancelled" and now["gigpo-1"] == "running")
    assert store.run("status", "smoke").returncode == 2
    assert "nothing to submit" in store.submit("--filter", "method=grpo").stdout
    store.wish()
    assert store.run("retry", "smoke", "--filter", "method=grpo").returncode == 0
    assert submitted(store)[1] == [[store.cell(name)["id"]] for name in ("grpo-1", "grpo-2")]
    store.slurm.ask("scancel", store.cell("gigpo-1")["job"])  # by hand, behind our back
    states = store.settled()
    assert states["gigpo-1"] == "lost"
    assert states["grpo-1"] == states["grpo-2"] == "done"


def test_a_preempted_cell_goes_on_where_it_was(store):
    store.wish(grpo_1="hang")
    store.submit("--filter", "method=grpo", "--filter", "seed=1", "--job", "partition=low", "--job", "cpus=8")
    store.wait(lambda now: now["grpo-1"] == "running")
    wait_until(lambda: (store.folder("grpo-1") / "ckpt" / "update").exists())
    job = store.cell("grpo-1")["job"]
    store.slurm.ask("sbatch", "-p", "high", "-N2", "-c8", "-o", "/dev/null", "--wrap", "sleep 1")
    store.wait(lambda now: now["grpo-1"] == "done", 120)
    assert store.cell("grpo-1")["job"] == job  # the same element, requeued
    attempts = sorted((store.folder("grpo-1") / "attempts").iterdir())
    rows = [(attempt / "metrics.jsonl").read_text().count("\n") for attempt in attempts]
    assert rows == [2, 0]  # nothing was done twice


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_warned_cell_checkpoints_and_requeues_itself_alone(store, number):
    store.wish(grpo_1="hang", grpo_2="hang")
    store.submit("--filter", "method=grpo")
    store.wait(lambda now: now["grpo-1"] == now["grpo-2"] == "running")
    wait_until(lambda: all((store.folder(f"grpo-{seed}") / "ckpt" / "update").exists() for seed in (1, 2)))
    store.slurm.ask("scancel", "--batch", f"--signal={number.name}", store.cell("grpo-1")["job"])
    states = store.wait(lambda now: now["grpo-1"] == "done")
    assert states["grpo-2"] == "running"  # the other element was left alone
    log = next((store.out / "submissions" / "0001" / "log").glob("0.out")).read_text()
    assert "requeue 1 of at most 20" in log


def test_requeues_are_bounded(store):
    store.wish(grpo_1="hang")
    store.submit("--filter", "method=grpo", "--filter", "seed=1", "--job", "max_requeues=0")
    store.wait(lambda now: now["grpo-1"] == "running")
    wait_until(lambda: (store.folder("grpo-1") / "ckpt" / "update").exists())
    store.slurm.ask("scancel", "--batch", "--signal=USR1", store.cell("grpo-1")["job"])
    assert store.settled()["grpo-1"] == "failed"
    assert "requeued 0 times" in store.cell("grpo-1")["note"]


def test_a_requeued_element_leaves_the_others_alone(store):
    store.wish(grpo_1="hang", grpo_2="hang")
    store.submit("--filter", "method=grpo")
    store.wait(lambda now: now["grpo-1"] == now["grpo-2"] == "running")
    wait_until(lambda: (store.folder("grpo-1") / "ckpt" / "update").exists())
    store.slurm.ask("scontrol", "requeue", store.cell("grpo-1")["job"])
    store.wait(lambda now: now["grpo-1"] == "done")
    assert store.states()["grpo-2"] == "running"


# --- crashes and races


def crash_at(store: Store, tmp_path: Path, command: str, how: str) -> dict[str, str]:
    """An environment in which `command` acts and then kills the one who called it; or kills it at once."""
    folder = tmp_path / f"bin-{command}"
    folder.mkdir()
    real = subprocess.run(["which", command], capture_output=True, text=True, check=True).stdout.strip()
    script = folder / command
    script.write_text(f"#!/bin/bash\n{how.format(real=real)}\n")
    script.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("command", "how", "reached"),
    [
        ("sbatch", "kill -9 $PPID", False),
        ("sbatch", '{real} "$@"; kill -9 $PPID', True),
        ("scontrol", '[ "$1" = release ] && kill -9 $PPID && exit 1; exec {real} "$@"', True),
    ],
)
def test_a_crash_in_a_submission_is_finished_by_the_next(store, tmp_path, command, how, reached):
    only = ("--filter", "method=grpo,graft")
    broken = store.run("submit", "smoke", *only, **crash_at(store, tmp_path, command, how))
    assert broken.returncode == -signal.SIGKILL
    held = store.slurm.queue()
    assert len(held) == (4 if reached else 0)
    assert "was interrupted" in store.run("status", "smoke").stdout
    assert store.run("fsck", "smoke").returncode == 1
    again = store.submit(*only)
    assert "was interrupted" in again.stdout
    assert ("nothing to submit" in again.stdout) is reached
    states = store.settled()
    assert Counter(states.values()) == {"done": 4, "missing": 8}
    jobs = {store.cell(name)["job"] for name, state in states.items() if state == "done"}
    assert not reached or jobs == set(held)
    assert all(len(list((store.folder(name) / "attempts").iterdir())) == 1 for name in ("grpo-1", "graft-2"))


def test_two_submitters_at_once_submit_every_cell_once(store):
    arguments = store.command("submit", "smoke", "--filter", "method=grpo,graft")
    both = [
        subprocess.Popen(arguments, env=store.environment, cwd=store.checkout, stdout=-1, stderr=-1, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=100) for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 75]), outputs
    assert Counter(store.settled().values()) == {"done": 4, "missing": 8}
    runs = [run for submission in submitted(store) for task in submission for run in task]
    assert len(runs) == len(set(runs)) == 4


def test_a_queue_that_cannot_be_read_submits_nothing(store, tmp_path):
    store.submit("--filter", "method=grpo")
    store.settled()
    failing = crash_at(store, tmp_path, "squeue", "echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1")
    done = store.run("submit", "smoke", **failing)
    assert done.returncode == 3
    assert "queue unknown" in done.stderr
    assert len(submitted(store)) == 1
    store.wish(gigpo_1="hang")
    store.submit("--filter", "method=gigpo")
    states = json.loads(store.run("status", "smoke", "--json", **failing).stdout)
    assert states["counts"] == {"done": 2, "missing": 8, "unknown": 2}
    assert states["exit_code"] == 3


def test_a_refused_submission_leaves_nothing_behind(store):
    done = store.run("submit", "smoke", "--job", "partition=nowhere")
    assert done.returncode == 1
    assert "Invalid partition" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert set(store.states().values()) == {"missing"}
    assert store.run("gc", "smoke").stdout.count("submissions") == 1
    assert submitted(store) == []


# --- what is frozen


def test_config_and_code_edited_after_submission_change_nothing(slurm, checkout, tmp_path):
    own = tmp_path / "checkout"
    subprocess.run([*GIT, "clone", "-q", str(checkout), str(own)], check=True)
    store = Store(slurm, own, tmp_path / "out")
    store.submit("--filter", "method=grpo", "--job", 'extra={begin: "now+8"}')
    run = RunFolder(store.folder("grpo-1"))
    rate = run.config()["protocol"]["learning_rate"]
    runner, protocol = own / "sweeps" / "run.py", own / "sweeps" / "conf" / "protocol" / "quick.yaml"
    runner.write_text(runner.read_text().replace('MARK = "as submitted"', 'MARK = "edited"'))
    protocol.write_text(re.sub("learning_rate: .*", "learning_rate: 5.0e-3", protocol.read_text()))
    store.settled()
    result = run.result()
    assert result["mark"] == "as submitted"
    assert result["lr"] == rate != 0.005
    assert result["code"].startswith(str(store.out / "code"))
    refused = store.run("submit", "smoke", "--filter", "method=graft")
    assert refused.returncode == 1
    assert "--allow-dirty" in refused.stderr
    store.submit("--filter", "method=graft", "--allow-dirty")
    store.settled()
    (dirty,) = (store.out / "code").glob("*/changes.diff")
    assert '+MARK = "edited"' in dirty.read_text()
    graft = next(path for path in (store.out / "runs").glob("*/result.json") if '"edited"' in path.read_text())
    assert json.loads(graft.read_text())["lr"] == 0.005


# --- arrays, packing, nodes, jobs within jobs


def test_packed_cells_share_a_job_and_one_death_does_not_end_the_others(store):
    store.wish(graphgpo_1="die")
    store.submit("--filter", "seed=1", "--job", "pack=3", "--job", "cpus=6", "--job", "gpus=3")
    states = store.settled()
    assert [len(tasks) for tasks in submitted(store)] == [2]
    assert {name for name, state in states.items() if state == "failed"} == {"graphgpo-1"}
    results = [json.loads(path.read_text())["seen"] for path in (store.out / "runs").glob("*/result.json")]
    assert {seen["OMP_NUM_THREADS"] for seen in results} <= {"1", "2"}
    assert all(seen["CUDA_VISIBLE_DEVICES"] in tuple("0123") for seen in results)


def test_one_cell_of_a_packed_job_is_cancelled_alone(store):
    store.wish(grpo_1="hang", grpo_2="hang")
    store.submit("--filter", "method=grpo", "--job", "pack=2")
    store.wait(lambda now: now["grpo-1"] == now["grpo-2"] == "running")
    wait_until(lambda: all((store.folder(f"grpo-{seed}") / "ckpt" / "update").exists() for seed in (1, 2)))
    assert "asked to stop" in store.run("cancel", "smoke", "--filter", "seed=1").stdout
    wait_until(lambda: "ended" in json.loads((store.folder("grpo-1") / "attempts" / "0001" / "env.json").read_text()))
    assert store.states()["grpo-2"] == "running"
    store.slurm.ask("scancel", "--batch", "--signal=USR1", store.cell("grpo-2")["job"])
    store.wait(lambda now: now["grpo-2"] == "done")
    assert store.settled()["grpo-1"] == "cancelled"
    assert len(list((store.folder("grpo-1") / "attempts").iterdir())) == 1


def test_a_grid_may_be_submitted_from_inside_a_job(store):
    command = " ".join(store.command("submit", "smoke", "--filter", "method=grpo", "--job", "mem=100M"))
    script = f"cd {store.checkout} && {command}"
    output = store.out.parent / "outer.out"
    subprocess.run(
        ["sbatch", "--mem-per-cpu=50", "-c3", "-o", str(output), "--wrap", script],
        env=store.environment, check=True, capture_output=True,
    )  # fmt: skip
    wait_until(lambda: output.exists() and "cells submitted" in output.read_text())
    states = store.settled()
    assert states["grpo-1"] == states["grpo-2"] == "done"


TWO_NODES = """
    import json, os, sys
    from pathlib import Path
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(total)
    nodes = [None] * dist.get_world_size()
    dist.all_gather_object(nodes, os.environ["SLURMD_NODENAME"])
    if dist.get_rank() == 0:
        from sweeps.store import RunFolder
        run = RunFolder.open(Path(sys.argv[1]))
        with run.start_attempt():
            run.write_result({"sum": total.item(), "nodes": nodes})
    dist.barrier()
"""


def test_a_cell_on_two_nodes_meets_on_the_first(slurm, checkout, tmp_path):
    own = tmp_path / "checkout"
    subprocess.run([*GIT, "clone", "-q", str(checkout), str(own)], check=True)
    (own / "sweeps" / "run.py").write_text(textwrap.dedent(TWO_NODES))
    store = Store(slurm, own, tmp_path / "out")
    jobs = ("--job", "nodes=2", "--job", "processes=2", "--job", "launch=ddp", "--job", "cpus=2")
    store.submit("--filter", "method=grpo", "--filter", "seed=1", "--allow-dirty", *jobs)
    states = store.settled()
    assert states["grpo-1"] == "done", store.run("why", "smoke").stdout
    result = json.loads((store.folder("grpo-1") / "result.json").read_text())
    assert result["sum"] == 10
    assert result["nodes"] == ["n1", "n1", "n2", "n2"]
