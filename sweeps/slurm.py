"""What is asked of Slurm, and how: squeue, scontrol, scancel; `sweeps.sbatch` submits.

The queue is read with one `squeue`; sacct is asked for a reason only, never for a state. Calls run in an environment
without the variables of a surrounding job, which sbatch and srun would obey silently.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sweeps.files import StoreError

WAITING = frozenset({"PD", "RH", "RQ", "RF", "SE"})
_INHERITED = ("SLURM_", "SBATCH_", "SRUN_", "PMIX_", "PMI_", "SALLOC_")
_KEPT = ("SLURM_CONF",)


class LimitError(StoreError):
    """The site takes no more jobs of this user for now."""


@dataclass(frozen=True)
class QueuedJob:
    """A job that Slurm knows to be alive. `state` is its short code; unknown codes count as running."""

    id: str
    state: str
    reason: str
    name: str

    @property
    def waiting(self) -> bool:
        """Not started, or put back into the queue."""
        return self.state in WAITING

    @property
    def held(self) -> bool:
        """Submitted on hold, not released."""
        return self.state == "PD" and self.reason.startswith("JobHeldUser")


@dataclass(frozen=True)
class Queue:
    """The user's live jobs by id (`A_K` for array elements). `problem` says why they are not known, or is None."""

    jobs: Mapping[str, QueuedJob] = field(default_factory=dict)
    problem: str | None = None


def available() -> bool:
    """Whether Slurm's commands are there."""
    return all(shutil.which(name) for name in ("squeue", "sbatch", "scontrol", "srun"))


def read_queue() -> Queue:
    """All live jobs of this user, in one call; a queue that cannot be read is a problem, never an empty queue."""
    if shutil.which("squeue") is None:
        return Queue(problem="squeue is not installed here")
    done = _run("squeue", "-h", "-r", "-u", str(os.getuid()), "-o", "%i|%t|%r|%j")
    if done.returncode:
        return Queue(problem=f"squeue failed: {first_line(done.stderr)}")
    jobs = {}
    for line in done.stdout.splitlines():
        parts = line.split("|", 3)
        if len(parts) == 4:
            jobs[parts[0]] = QueuedJob(*parts)
    return Queue(jobs)


def array_limit() -> int:
    """Largest number of elements of one array here: MaxArraySize (indices go up to one less), at most 1000."""
    done = _run("scontrol", "show", "config")
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", done.stdout, re.M)
    if done.returncode or not found:
        raise StoreError(f"scontrol show config failed: {first_line(done.stderr) or 'no MaxArraySize in it'}")
    return max(1, min(int(found[1]), 1000))


def release(job: str) -> None:
    """Let a held job (a whole array) go."""
    _must("scontrol", "release", job)


def requeue(job: str) -> None:
    """Put one array element back into the queue; ends it here and now."""
    _must("scontrol", "requeue", job)


def state(job: str) -> str:
    """Long state of one live job, e.g. RUNNING; "" when the queue does not say."""
    done = _run("squeue", "-h", "-j", job, "-o", "%T")
    return done.stdout.strip() if done.returncode == 0 else ""


def cancel(jobs: Sequence[str]) -> None:
    """Cancel exactly these jobs."""
    for start in range(0, len(jobs), 200):
        _must("scancel", *jobs[start : start + 200])


def accounting(job: str) -> str | None:
    """State and exit code in the accounting, e.g. "TIMEOUT 0:0"; None where there is none."""
    if shutil.which("sacct") is None:
        return None
    done = _run("sacct", "-n", "-X", "-P", "-j", job, "-o", "State,ExitCode")
    line = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else []
    return line[0].replace("|", " ") if line else None


def hostnames(nodelist: str) -> list[str]:
    """Names in a node list such as `n[1-2]`, in order."""
    return _must("scontrol", "show", "hostnames", nodelist).split()


def address(node: str) -> str:
    """A node's address; its name need not resolve."""
    found = re.search(r"NodeAddr=(\S+)", _must("scontrol", "show", "node", node))
    return found[1] if found else node


def _must(*command: str) -> str:
    done = _run(*command)
    if done.returncode:
        raise StoreError(f"{command[0]} failed: {first_line(done.stderr)}")
    return done.stdout


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    with clean_environment():
        try:
            return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(command, 1, "", str(error))


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")


@contextlib.contextmanager
def clean_environment() -> Iterator[None]:
    """Without the variables of a job that this process may run in, but with SLURM_CONF."""
    taken = {
        name: os.environ.pop(name) for name in list(os.environ) if name.startswith(_INHERITED) and name not in _KEPT
    }
    try:
        yield
    finally:
        os.environ.update(taken)
