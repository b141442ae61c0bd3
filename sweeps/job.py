"""The program of a Slurm job: runs the cells of one array element, each in processes of its own, and requeues itself.

    python -m sweeps.job SUBMISSION_FOLDER        (SLURM_ARRAY_TASK_ID says which element)

SIGTERM (preemption) and SIGUSR1 (time limit ahead) are passed on as a request to stop: cells write a checkpoint at the
end of their update and exit with `stop.REQUEUE`; the element then goes back into the queue, at most `max_requeues`
times. A cell that dies without a word gets an error.json from here. Imports no torch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from sweeps import launch, slurm, states, stop
from sweeps.files import StoreError, read_json
from sweeps.jobspec import JobSpec
from sweeps.store import RunFolder
from sweeps.submission import Submission, job_spec

POLL = 0.2


class KilledError(RuntimeError):
    """A cell's process ended by a signal, without a record of its own."""


@dataclass
class Running:
    """A cell's process; `slot` is its place among those that run at a time."""

    process: subprocess.Popen[bytes]
    slot: int
    began: float


@dataclass
class Element:
    """One array element at work: its cells to do, those that run, and how the others ended."""

    job: str
    spec: JobSpec
    folders: list[Path]
    running: dict[Path, Running] = field(default_factory=dict)
    codes: dict[Path, int] = field(default_factory=dict)
    longest: float = 0.0
    stopping: bool = False


def main(arguments: Sequence[str]) -> int:
    """0 when every cell of the element is done (or none of this job's business), else 1; a requeue ends the process."""
    submission = Submission.read(Path(arguments[0]))
    if submission is None:
        raise StoreError(f"{arguments[0]} holds no submission.json that can be read")
    number = int(os.environ["SLURM_ARRAY_TASK_ID"])
    job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{number}"
    runs = submission.folder.parent.parent / "runs"
    spec = job_spec(submission)
    element = Element(job, spec, [runs / run for run in submission.tasks[number] if _mine(runs / run, job)])
    for name in stop.SIGNALS:
        signal.signal(name, lambda *_: _request(element))
    _forget_requests(element)
    _work(element, time.monotonic() + spec.time * 60 - spec.lead)
    return _end(element)


def _mine(folder: Path, job: str) -> bool:
    """Whether this job is still the one that the cell was given to, and the cell is not done."""
    record = read_json(folder / states.JOB) or {}
    if record.get("job") != job:
        print(f"{folder.name}: given to job {record.get('job')} since; left alone", flush=True)
        return False
    if (folder / states.CANCELLED).exists():
        print(f"{folder.name}: cancelled", flush=True)
        return False
    return RunFolder(folder).result() is None


def _forget_requests(element: Element) -> None:
    for folder in element.folders:
        stop.file_of(folder).unlink(missing_ok=True)


def _request(element: Element, _frame: FrameType | None = None) -> None:
    """Ask every cell to stop; those that have not begun do not begin."""
    element.stopping = True
    for folder in list(element.running):
        stop.file_of(folder).touch()


def _work(element: Element, deadline: float) -> None:
    waiting = list(element.folders)
    at_once = element.spec.parallel or element.spec.pack
    slots = _devices(at_once, os.environ.get("CUDA_VISIBLE_DEVICES"))
    while waiting or element.running:
        while waiting and len(element.running) < at_once and not element.stopping:
            if element.longest and time.monotonic() + element.longest > deadline:
                print(f"{len(waiting)} cells do not fit into the time left", flush=True)
                element.stopping = True
                break
            slot = next(i for i in range(at_once) if i not in {one.slot for one in element.running.values()})
            _start(element, waiting.pop(0), slot, slots)
        if element.stopping and not element.running:
            element.codes.update(dict.fromkeys(waiting, stop.REQUEUE))
            return
        _collect(element)
        time.sleep(POLL)


def _devices(at_once: int, visible: str | None) -> list[str] | None:
    """CUDA_VISIBLE_DEVICES of each slot: divided where there are enough GPUs, else shared; None without packing."""
    names = [name for name in (visible or "").split(",") if name]
    if at_once == 1 or not names:
        return None
    if len(names) >= at_once:
        each = len(names) // at_once
        return [",".join(names[i * each : (i + 1) * each]) for i in range(at_once)]
    return [names[i % len(names)] for i in range(at_once)]


def _start(element: Element, folder: Path, slot: int, slots: list[str] | None) -> None:
    environment = _environment(element, folder, None if slots is None else slots[slot])
    log = folder / "start.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            launch.command(folder, element.spec, environment),
            stdout=stream, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        )  # fmt: skip
    element.running[folder] = Running(process, slot, time.monotonic())
    print(f"{folder.name}: started", flush=True)
    if element.stopping:
        stop.file_of(folder).touch()


def _environment(element: Element, folder: Path, visible: str | None) -> Mapping[str, str]:
    spec = element.spec
    threads = max(1, spec.cpus // (spec.parallel or spec.pack) // spec.per_node)
    own = {
        stop.VARIABLE: str(stop.file_of(folder)),
        launch.OUTPUT: str(folder / "start.log"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(threads),
    }
    if visible is not None:
        own["CUDA_VISIBLE_DEVICES"] = visible
    return {**os.environ, **own}


def _collect(element: Element) -> None:
    for folder, one in list(element.running.items()):
        code = one.process.poll()
        if code is None:
            continue
        del element.running[folder]
        element.codes[folder] = _meaning(folder, code)
        element.longest = max(element.longest, time.monotonic() - one.began)
        print(f"{folder.name}: exit code {code}", flush=True)


def _meaning(folder: Path, code: int) -> int:
    """The code of a cell, whose record is the truth: a launcher turns codes of its processes into 1."""
    run = RunFolder(folder)
    if run.result() is not None:
        return 0
    if code and run.error() is None and not stop.file_of(folder).exists():
        reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}, no record"
        run.write_error(KilledError(reason + (" (out of memory?)" if code == -signal.SIGKILL else "")), None)
    if run.error() is not None:
        return 1
    return stop.REQUEUE


def _end(element: Element) -> int:
    """Back into the queue if some cell was asked to stop; else 1 if some cell failed."""
    again = [folder for folder, code in element.codes.items() if code == stop.REQUEUE]
    again = [folder for folder in again if not (folder / states.CANCELLED).exists()]
    if again:
        _requeue(element, again)
    return 1 if any(element.codes.values()) else 0


def _requeue(element: Element, cells: Sequence[Path]) -> None:
    """Requeue this element, unless it was cancelled by hand or has been requeued often enough; does not return if it
    works, as Slurm ends this process."""
    count = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if count >= element.spec.max_requeues:
        for folder in cells:
            reason = f"requeued {count} times (resources.max_requeues); retry it with more time"
            RunFolder(folder).write_error(RuntimeError(reason), None)
        return
    now = slurm.state(element.job)
    if now != "RUNNING":
        print(f"not requeued: the job is {now or 'gone'}", flush=True)
        return
    print(f"requeue {count + 1} of at most {element.spec.max_requeues}", flush=True)
    try:
        slurm.requeue(element.job)
    except StoreError as error:
        print(f"not requeued: {error}", flush=True)
        return
    time.sleep(120)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
