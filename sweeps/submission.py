"""Submissions: the record of each array that was given to Slurm, and the protocol that survives a crash anywhere.

    OUT/submissions/0003/submission.json    what it is: state, job name, job id, runs of every element, code
                         log/K.out          output of element K
                         *_submission.sh    the script

States: `intended` (written before sbatch), `submitted` (held in the queue, its id known), `released`, `abandoned`
(sbatch refused it, or it never got there). Whatever a crash leaves in between, `settle` finishes: a held array carries
the submission's name in the queue, so it is found without its id.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sweeps import environment, jobspec, slurm, snapshot, states
from sweeps.files import StoreError, atomic_write_json, read_json
from sweeps.jobspec import JobSpec

INTENDED, SUBMITTED, RELEASED, ABANDONED = "intended", "submitted", "released", "abandoned"


class Busy(StoreError):
    """Another process works on this store's submissions; try again."""


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Only one process at a time works on what lies in a folder. The lock of a dead process of this host is taken over;
    Busy names the holder otherwise."""
    path = Path(folder) / ".lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    _acquire(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _acquire(path: Path) -> None:
    me = {"host": socket.gethostname(), "pid": os.getpid(), "process_start": environment.process_start(os.getpid())}
    draft = path.with_name(f".lock.{me['host']}.{os.getpid()}.tmp")
    atomic_write_json(draft, {**me, "since": time.time()}, durable=False)
    try:
        for _ in range(3):
            try:
                os.link(draft, path)  # fails where there is one, on NFS too; it never appears half written
                return
            except FileExistsError:
                _take_over(path)
        raise Busy(f"{path} changes hands all the time; try again")
    finally:
        draft.unlink(missing_ok=True)


def _take_over(path: Path) -> None:
    """Remove a dead holder's lock; of several who try, the rename lets one do it."""
    holder = read_json(path)
    if holder is None:
        return
    if holder.get("host") != socket.gethostname() or environment.is_live(holder):
        since = time.strftime("%H:%M:%S", time.localtime(holder.get("since", 0)))
        raise Busy(
            f"process {holder.get('pid')} on {holder.get('host')} works on {path.parent} since {since}; try again when "
            f"it has ended (or delete {path} if it is dead)"
        )
    gone = path.with_name(f".lock.dead.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        path.rename(gone)
        taken = read_json(gone)
        if taken != holder:  # somebody else was quicker, and this lock is theirs
            with contextlib.suppress(FileExistsError):
                os.link(gone, path)
    gone.unlink(missing_ok=True)


@dataclass
class Submission:
    """One array. `tasks[K]` are the runs of element K; `job` is the array's id once it is known."""

    folder: Path
    state: str
    name: str
    grid: str
    tasks: list[list[str]]
    spec: dict[str, Any]
    code: dict[str, Any]
    created: float
    job: str | None = None
    message: str = ""

    @property
    def id(self) -> str:
        """Its number, as text."""
        return self.folder.name

    def write(self) -> None:
        """Record it durably."""
        record = {key: value for key, value in vars(self).items() if key != "folder"}
        atomic_write_json(self.folder / "submission.json", {"schema": 1, **record})

    @classmethod
    def read(cls, folder: Path) -> Submission | None:
        """The submission in a folder; None when its record is not there or cannot be read."""
        value = read_json(folder / "submission.json")
        if value is None:
            return None
        try:
            return cls(folder, **{key: item for key, item in value.items() if key != "schema"})
        except TypeError:
            return None


def all_submissions(out: Path) -> list[Submission]:
    """Every submission of a store, oldest first."""
    folder = Path(out) / "submissions"
    numbered = [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
    found = sorted(numbered, key=lambda path: int(path.name))
    return [submission for submission in map(Submission.read, found) if submission is not None]


def store_tag(out: Path) -> str:
    """Names the store in the names of its jobs."""
    return hashlib.sha256(str(Path(out).resolve()).encode()).hexdigest()[:8]


def new(out: Path, grid: str, tasks: Sequence[Sequence[str]], spec: JobSpec, code: snapshot.Code) -> Submission:
    """A submission that is intended: its folder, its log folder and its record, before anything is submitted."""
    parent = Path(out).resolve() / "submissions"
    parent.mkdir(parents=True, exist_ok=True)
    number = max((int(path.name) for path in parent.iterdir() if path.name.isdigit()), default=0) + 1
    folder = parent / f"{number:04d}"
    (folder / "log").mkdir(parents=True)
    made = Submission(
        folder, INTENDED, f"creditbench-{store_tag(out)}-{folder.name}", grid, [list(task) for task in tasks],
        _spec_record(spec), {"folder": str(code.folder) if code.folder else None,
        "commit": code.commit, "dirty": code.dirty}, time.time(),
    )  # fmt: skip
    made.write()
    return made


def send(out: Path, submission: Submission, limit: int | None, after: str | None = None) -> str:
    """Submit an intended array on hold, say so in its record and its runs, then release it. Returns the array's id.

    limit: at most this many elements at a time; after: an array that must end first.
    """
    from sweeps import sbatch

    spec = job_spec(submission)
    flags = _flags(submission, spec, limit, after)
    runner = sbatch.executor(submission.folder, submission.name, _setup(spec, submission))
    try:
        job = runner.submit_command(_command(submission), len(submission.tasks), flags)
    except StoreError as error:
        submission.state, submission.message = ABANDONED, str(error)
        submission.write()
        raise
    _confirm(out, submission, job)
    return job


def _flags(submission: Submission, spec: JobSpec, limit: int | None, after: str | None) -> dict[str, Any]:
    flags = {
        **jobspec.sbatch_flags(spec),
        "hold": True,
        "requeue": True,
        "output": str(submission.folder / "log" / "%a.out"),
        "signal": f"B:USR1@{spec.lead}",
        "array": f"0-{len(submission.tasks) - 1}" + (f"%{limit}" if limit else ""),
    }
    return {**flags, "dependency": f"afterany:{after}"} if after else flags


def preview(out: Path, grid: str, array: Any) -> str:
    """The script of an array as sbatch would get it, its run ids left out; writes nothing that stays."""
    from sweeps import sbatch

    with tempfile.TemporaryDirectory() as folder:
        made = Submission(
            Path(folder), INTENDED, f"creditbench-{store_tag(out)}-NNNN", grid, [[] for _ in array.tasks],
            _spec_record(array.spec), {"folder": None, "commit": None, "dirty": None}, 0.0,
        )  # fmt: skip
        runner = sbatch.executor(made.folder, made.name, _setup(array.spec, made))
        text = runner.script(_command(made), len(array.tasks), _flags(made, array.spec, array.limit, None))
        return text.replace(folder, str(Path(out).resolve() / "submissions" / "NNNN"))


def _spec_record(spec: JobSpec) -> dict[str, Any]:
    return {**asdict(spec), "extra": dict(spec.extra)}


def job_spec(submission: Submission) -> JobSpec:
    """The resources a submission was made with."""
    return jobspec.make(submission.spec, where=f"submission {submission.id}")


def _setup(spec: JobSpec, submission: Submission) -> list[str]:
    folder = submission.code["folder"]
    variables = {**snapshot.python_environment(Path(folder) if folder else None), "SRUN_CPUS_PER_TASK": str(spec.cpus)}
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return [*spec.setup, *exports]


def _command(submission: Submission) -> str:
    return shlex.join([sys.executable, "-u", "-m", "sweeps.job", str(submission.folder)])


def _confirm(out: Path, submission: Submission, job: str) -> None:
    submission.job, submission.state = job, SUBMITTED
    submission.write()
    now = time.time()
    for element, runs in enumerate(submission.tasks):
        for folder in (Path(out) / "runs" / run for run in runs):
            if _given(folder) != (submission.id, f"{job}_{element}"):  # else a mark that came later would be lost
                states.mark_submitted(folder, f"{job}_{element}", submission.id, now)
    slurm.release(job)
    submission.state = RELEASED
    submission.write()


def _given(folder: Path) -> tuple[str, str]:
    """(submission, job) that a run was given to last."""
    record = read_json(folder / states.JOB) or {}
    return str(record.get("submission", "")), str(record.get("job", ""))


def _outrun(out: Path, submission: Submission) -> bool:
    """Whether cells of a submission that seemed lost were submitted again."""
    runs = (run for task in submission.tasks for run in task)
    return any(int(_given(Path(out) / "runs" / run)[0] or 0) > int(submission.id) for run in runs)


def unsettled(out: Path) -> list[Submission]:
    """Submissions that a crash left between intention and release."""
    return [one for one in all_submissions(out) if one.state in (INTENDED, SUBMITTED)]


def settle(out: Path, queue: slurm.Queue) -> list[str]:
    """Finish what a crash interrupted, under the lock: arrays found on hold are confirmed and released, intentions that
    never reached the queue are abandoned (should their array still come, after their cells went elsewhere, it is
    cancelled). Returns one line for each."""
    by_name = _arrays_by_name(queue)
    said = []
    for submission in all_submissions(out):
        job = by_name.get(submission.name)
        if submission.state == RELEASED or (submission.state == ABANDONED and job is None):
            continue
        if job is not None and submission.state == ABANDONED and _outrun(out, submission):
            slurm.cancel([job])
            said.append(f"array {job} of submission {submission.id} came late, its cells are elsewhere; cancelled")
        elif job is not None:
            _confirm(out, submission, job)
            said.append(f"submission {submission.id} was interrupted; its array {job} is released now")
        elif submission.state == SUBMITTED:  # released, and over already
            submission.state = RELEASED
            submission.write()
        else:
            submission.state, submission.message = ABANDONED, "interrupted before it reached the queue"
            submission.write()
            said.append(f"submission {submission.id} was interrupted before it reached the queue; its cells are free")
    return said


def _arrays_by_name(queue: slurm.Queue) -> Mapping[str, str]:
    return {job.name: job.id.partition("_")[0] for job in queue.jobs.values()}
