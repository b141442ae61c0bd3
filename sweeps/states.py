"""The state of every cell: files first, the queue second.

done        result.json is there
running     its job runs, or a process on this machine holds it
queued      its job waits (also one that was put back into the queue)
cancelled   by `creditbench cancel`
failed      error.json is there
lost        it was submitted or begun, and nothing is left of it: killed, node failure, time limit. On a network
            file system, where a file of another machine may show late, two looks a minute apart say so (`looks`)
missing     never submitted
unknown     it was submitted and the queue cannot be read
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps import looks, slurm
from sweeps.files import atomic_write_json, read_json
from sweeps.store import RunFolder

STATES = ("done", "running", "queued", "failed", "lost", "cancelled", "missing", "unknown")
SILENCE = 3600.0
HERE = "on this machine"
JOB = "job.json"
CANCELLED = "cancelled.json"


@dataclass(frozen=True)
class RunState:
    """State of one run. `note` says more where there is more to say; `job` is the id of its newest job, if any."""

    state: str
    note: str = ""
    job: str | None = None


def read_states(out: Path, ids: Iterable[str], queue: slurm.Queue | None = None) -> dict[str, RunState]:
    """The state of each run. The queue is asked once, and only if a run was ever given to it."""
    ids = list(dict.fromkeys(ids))
    folders = {run: Path(out) / "runs" / run for run in ids}
    jobs = {run: read_json(folder / JOB) for run, folder in folders.items()}
    if queue is None:
        queue = slurm.read_queue() if any(jobs.values()) else slurm.Queue()
    return {run: _state(RunFolder(folders[run]), jobs[run], queue) for run in ids}


def _state(run: RunFolder, job: Mapping[str, Any] | None, queue: slurm.Queue) -> RunState:
    name = str(job["job"]) if job and "job" in job else None
    if run.result() is not None:
        return RunState("done", job=name)
    live = queue.jobs.get(name) if name else None
    if live is not None:
        return RunState(*_of_job(run, live), job=name)
    if run.holder() is not None:
        return RunState("running", _stalled(run) or HERE, name)
    if (run.path / CANCELLED).exists():
        return RunState("cancelled", job=name)
    error = run.error()
    if error is not None:
        return RunState("failed", " ".join(f"{error.get('class')}: {error.get('message')}".split()), name)
    if name is not None and queue.problem is not None:
        return RunState("unknown", queue.problem, name)
    if name is not None and not looks.gone_for_good(run.path, name):
        return RunState("running", f"job {name} is gone; its last files may show late, look again in a minute", name)
    if name is not None:
        return RunState("lost", f"job {name} is gone and left no result", name)
    if run.attempts():
        return RunState("lost", "interrupted")
    return RunState("missing")


def _of_job(run: RunFolder, live: slurm.QueuedJob) -> tuple[str, str]:
    if live.held:
        return "queued", "held: its submission was interrupted, the next submit finishes it"
    if live.waiting:
        return "queued", f"requeued ({live.reason})" if run.attempts() else live.reason
    return "running", _stalled(run)


def _stalled(run: RunFolder) -> str:
    """A doubt about a run that has written nothing for `SILENCE` seconds; "" without one."""
    attempts = run.attempts()
    written = [path for name in ("out.log", "metrics.jsonl") for path in [attempts[-1] / name] if path.exists()] \
        if attempts else []  # fmt: skip
    silent = time.time() - max((path.stat().st_mtime for path in written), default=time.time())
    return f"stalled? it wrote nothing for {silent / 60:.0f} minutes" if silent > SILENCE else ""


# --- marks ------------------------------------------------------------------------------------------------------------


def mark_submitted(run: Path, job: str, submission: str, when: float) -> None:
    """Say which job runs a cell from now on; its earlier cancellation or failure is over. Not flushed: a submission's
    own record is, and it says the same of all its cells."""
    (run / CANCELLED).unlink(missing_ok=True)
    looks.forget(run)
    RunFolder(run).archive_error()
    record = {"schema": 1, "job": job, "submission": submission, "submitted_at": when}
    atomic_write_json(run / JOB, record, durable=False)


def mark_cancelled(run: Path, when: float) -> None:
    """Say that a run was stopped on purpose, so that it is neither failed nor lost."""
    atomic_write_json(run / CANCELLED, {"schema": 1, "time": when})


def unmark(run: Path) -> None:
    """Forget the cancellation, the failure and the job of a run that now goes on without one."""
    RunFolder(run).archive_error()
    (run / CANCELLED).unlink(missing_ok=True)
    (run / JOB).unlink(missing_ok=True)
