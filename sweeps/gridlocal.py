"""A grid on this machine, without Slurm: a pool of processes, GPU slots, the same runner and files, resumable."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sweeps import progress, snapshot, states, submission
from sweeps.config import ConfigError
from sweeps.local import Job, Outcome, run_jobs, terminate_like_interrupt
from sweeps.plan import GridPlan, Planned, record_path
from sweeps.submit import Options, Say, check_configs, choose, create, refuse_other_code

RUNNER = "sweeps.run"


def visible_gpus(asked: str | None = None) -> list[str] | None:
    """Names of the GPUs to use: those asked for ("0,1"), those of CUDA_VISIBLE_DEVICES, or all; None without any."""
    listed = asked if asked is not None else os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        names = [name.strip() for name in listed.split(",") if name.strip()]
        if len(set(names)) < len(names):
            raise ConfigError(f"--gpus names one GPU twice: {listed}")
        return names or None
    if shutil.which("nvidia-smi") is None:
        return None
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return re.findall(r"^GPU (\d+):", done.stdout, re.M) or None


def run(out: Path, planned: GridPlan, options: Options, workers: int, gpus: Sequence[str] | None, say: Say) -> int:
    """Run what is to do, `workers` cells at a time, and wait for it; the number of cells that failed.

    Cells that a Slurm job or another process runs are left alone. KeyboardInterrupt is raised once every cell has
    stopped; the same call goes on.
    """
    out = Path(out).resolve()
    with submission.lock(record_path(out, planned.name).parent), terminate_like_interrupt():
        todo = _claimed(out, planned, options)
        if not todo:
            return 0
        say(f"{len(todo)} cells on this machine, {workers} at a time")
        failed = _prepare(out, todo, workers)
        if not failed:
            failed = _pool(_jobs(out, todo, gpus), workers, todo, gpus)
    for outcome in failed:
        say(f"{outcome.job.label} failed: {outcome.reason}\n  log: {outcome.log}")
    return len(failed)


def _claimed(out: Path, planned: GridPlan, options: Options) -> list[Planned]:
    """What is to do, written down, with no trace of earlier jobs; no Slurm submission goes on meanwhile."""
    with submission.lock(out / "submissions"):
        known = states.read_states(out, planned.runs)
        todo = choose(planned, known, options)
        check_configs(todo)
        if options.same_code:
            refuse_other_code(out, known, snapshot.take(out, allow_dirty=True, copy=False))
        create(out, planned, todo)
        for one in todo:
            states.unmark(out / "runs" / one.cell.id)
    return todo


def _prepare(out: Path, todo: Sequence[Planned], workers: int) -> list[Outcome]:
    """Warm starts first, once each, so that cells find them."""
    different = {repr((p.config["model"], p.config["benchmark"])): p for p in todo if "warm_start" in p.config["model"]}
    jobs = [
        Job(f"warm start {p.cell.benchmark}" + (f" {i}" if i else ""), f"{RUNNER}:prepare", (p.config, out),
            out / "cache" / f"prepare{i or ''}.log")
        for i, p in enumerate(different.values())
    ]  # fmt: skip
    return _pool(jobs, workers, todo, None) if jobs else []


def _jobs(out: Path, todo: Sequence[Planned], gpus: Sequence[str] | None) -> list[Job]:
    jobs = []
    for planned in todo:
        folder = out / "runs" / planned.cell.id
        devices = planned.job.gpus if gpus is not None else 0
        target = "sweeps.launch:run_here" if planned.job.world > 1 else f"{RUNNER}:run_cell"
        arguments = (folder, planned.job) if planned.job.world > 1 else (folder,)
        jobs.append(Job(planned.cell.label, target, arguments, folder / "start.log", folder, devices))
    return jobs


def _pool(jobs: Sequence[Job], workers: int, todo: Sequence[Planned], gpus: Sequence[str] | None) -> list[Outcome]:
    updates = {p.cell.label: p.config["protocol"]["updates"] for p in todo}
    watcher = progress.watcher({job.label: updates.get(job.label, 0) for job in jobs})
    threads = max(p.config["resources"]["threads"] for p in todo)
    try:
        outcomes = run_jobs(jobs, workers, preload=(RUNNER,), threads=threads, devices=gpus, watcher=watcher)
    finally:
        getattr(watcher, "close", lambda: None)()
    return [outcome for outcome in outcomes if outcome.exit_code]
