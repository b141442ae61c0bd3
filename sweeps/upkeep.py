"""Stopping cells, tidying the store, and checking that its files say the truth."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sweeps import slurm, states, stop, submission
from sweeps.config import identity
from sweeps.files import StoreError, read_json
from sweeps.status import View
from sweeps.store import RunFolder

DRAFT_AGE = 3600.0


def cancel(out: Path, ids: Sequence[str], dry_run: bool = False) -> list[str]:
    """Mark runs as cancelled, then stop exactly their jobs and local processes. One line for each."""
    out = Path(out).resolve()
    if dry_run:
        return [f"{run}: would be cancelled" for run in ids]
    with submission.lock(out / "submissions"):
        queue = slurm.read_queue()
        known = states.read_states(out, ids, queue)
        live = [run for run in ids if known[run].state in ("queued", "running")]
        for run in live:
            states.mark_cancelled(out / "runs" / run, time.time())
        jobs = {known[run].job: run for run in live if known[run].job in queue.jobs}
        stopped = [job for job in jobs if job and not _shared(out, job, set(live), queue)]
        slurm.cancel(stopped)
        shared = set(jobs) - set(stopped)
        return [_cancel_one(out / "runs" / run, known[run].job, stopped, shared) for run in live]


def _shared(out: Path, job: str, cancelled: set[str], queue: slurm.Queue) -> bool:
    """Whether a packed job also runs cells that go on."""
    name = queue.jobs[job].name
    packed = next((one for one in submission.all_submissions(out) if one.name == name), None)
    element = job.rpartition("_")[2]
    runs = packed.tasks[int(element)] if packed and element.isdigit() else []
    return any(run not in cancelled and RunFolder(out / "runs" / run).result() is None for run in runs)


def _cancel_one(run: Path, job: str | None, stopped: Sequence[str], shared: set[str | None]) -> str:
    if job in stopped:
        return f"{run.name}: cancelled with job {job}"
    if job in shared:  # the job's program obeys the mark, the cell the file
        stop.file_of(run).touch()
        return f"{run.name}: asked to stop; it shares job {job} with cells that go on"
    holder = RunFolder(run).holder()
    if holder is None:
        return f"{run.name}: marked; it has just ended"
    with contextlib.suppress(ProcessLookupError):
        os.kill(holder, signal.SIGTERM)  # a script that starts it with & has SIGINT ignored
    return f"{run.name}: process {holder} was interrupted"


# --- gc ---------------------------------------------------------------------------------------------------------------


def collect(out: Path, view: View, with_checkpoints: bool, dry_run: bool = False) -> list[str]:
    """Remove drafts that a crash left (older than an hour), abandoned submissions and code copies that no live job
    runs; on request checkpoints of runs that are done. Refuses while the queue is unknown. One line for each."""
    out = Path(out).resolve()
    with submission.lock(out / "submissions"):
        waste = [*_drafts(out, view), *_abandoned(out)]
        if "unknown" not in view.counts:
            waste += _old_code(out)
        if with_checkpoints:
            done = [cell.id for cell in view.cells if view.states[cell.id].state == "done"]
            waste += [path for run in done if (path := out / "runs" / run / "ckpt").is_dir()]
        for path in waste:
            if not dry_run:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return [str(path) for path in waste]


def _drafts(out: Path, view: View) -> Iterator[Path]:
    roots = [out / "runs" / run for run in dict.fromkeys(cell.id for cell in view.cells)]
    for root in [*roots, out / "grids" / view.grid, out / "code"]:
        pattern = "*.tmp" if root.name == "code" else "**/*.tmp"
        for path in root.glob(pattern) if root.is_dir() else ():
            if path.name.startswith(".") and time.time() - path.stat().st_mtime > DRAFT_AGE:
                yield path
        partial = root / "ckpt" / ".partial"
        if partial.is_dir() and RunFolder(root).result() is not None:
            yield partial


def _abandoned(out: Path) -> Iterator[Path]:
    for one in submission.all_submissions(out):
        if one.state == submission.ABANDONED:
            yield one.folder


def _old_code(out: Path) -> Iterator[Path]:
    """Copies that no job in the queue was submitted with, except the newest."""
    folder = out / "code"
    copies = sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: p.stat().st_mtime) \
        if folder.is_dir() else []  # fmt: skip
    queue = slurm.read_queue() if copies else slurm.Queue()
    submissions = submission.all_submissions(out)
    if queue.problem is not None and submissions:
        return
    live = {job.name for job in queue.jobs.values()}
    needed = {one.code.get("folder") for one in submissions if one.name in live}
    yield from (path for path in copies[:-1] if str(path) not in needed)


# --- fsck -------------------------------------------------------------------------------------------------------------


def check(out: Path, view: View) -> list[str]:
    """What is damaged or contradicts itself, one line each: configurations that are not their run's, results whose
    metrics changed, torn or broken records, jobs in the queue that belong to no submission."""
    out = Path(out).resolve()
    found = [line for run in dict.fromkeys(cell.id for cell in view.cells) for line in _check_run(out, run)]
    return [*found, *_check_submissions(out)]


def _check_run(out: Path, run_id: str) -> Iterator[str]:
    run = RunFolder(out / "runs" / run_id)
    if not run.path.is_dir():
        return
    try:
        if identity(run.config()) != run_id:
            yield f"{run.path / 'config.yaml'}: was changed; it is not the configuration of run {run_id}"
        if run.torn_lines() and run.result() is None:
            yield f"{run.path}: a crash cut {run.torn_lines()} metrics line short (harmless, it is left out)"
        if run.result() is not None and not run.metrics_match_result():
            yield f"{run.path / 'result.json'}: the metrics are not those that it was written for"
        run.evaluations()
    except (StoreError, KeyError, TypeError) as error:
        yield f"{run.path}: {error}"
    yield from _unreadable(run.path)


def _unreadable(folder: Path) -> Iterator[str]:
    for name in ("result.json", "error.json", states.JOB, states.CANCELLED):
        if (folder / name).exists() and read_json(folder / name) is None:
            yield f"{folder / name}: is empty or no JSON object"


def _check_submissions(out: Path) -> Iterator[str]:
    submissions = {one.name: one for one in submission.all_submissions(out)}
    for one in submissions.values():
        if one.state in (submission.INTENDED, submission.SUBMITTED):
            yield f"{one.folder}: was interrupted; the next submit finishes it"
    if not submissions:
        return
    prefix = f"creditbench-{submission.store_tag(out)}-"
    for name in _names(slurm.read_queue().jobs.values(), prefix):
        known = submissions.get(name)
        if known is None or known.state == submission.ABANDONED:
            yield f"jobs named {name} are in the queue, but no submission knows them; scancel --name={name}"


def _names(jobs: Iterable[slurm.QueuedJob], prefix: str) -> list[str]:
    return sorted({job.name for job in jobs if job.name.startswith(prefix)})
