"""What is known of one cell: its error, the last lines of its output, what Slurm says."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

from sweeps import slurm, states
from sweeps.files import read_json
from sweeps.plan import Cell
from sweeps.states import RunState
from sweeps.store import RunFolder


def log_path(out: Path, run: str) -> Path | None:
    """The newest output of a run: its newest attempt's, a start that got no attempt yet, or its job's."""
    folder = Path(out) / "runs" / run
    attempts = RunFolder(folder).attempts()
    found = [folder / "start.log", *([attempts[-1] / "out.log"] if attempts else [])]
    existing = [path for path in found if path.exists()]
    if existing:
        return max(existing, key=lambda path: path.stat().st_mtime)
    job_log = _job_log(out, folder)
    return job_log if job_log is not None and job_log.exists() else None


def _job_log(out: Path, folder: Path) -> Path | None:
    record = read_json(folder / states.JOB)
    if not record:
        return None
    element = str(record.get("job", "")).rpartition("_")[2]
    return Path(out) / "submissions" / str(record.get("submission")) / "log" / f"{element}.out"


def explain(out: Path, cell: Cell, state: RunState, lines: int) -> dict[str, Any]:
    """Everything about one cell, as a record."""
    folder = Path(out) / "runs" / cell.id
    run = RunFolder(folder)
    log, job_log = log_path(out, cell.id), _job_log(out, folder)
    return {
        "id": cell.id,
        "label": cell.label,
        "state": state.state,
        "note": state.note,
        "job": state.job,
        "accounting": slurm.accounting(state.job) if state.job else None,
        "attempts": len(run.attempts()),
        "error": run.error(),
        "log": str(log) if log else None,
        "lines": tail(log, lines) if log else [],
        "job_log": str(job_log) if job_log else None,
        "job_lines": tail(job_log, lines) if job_log else [],
    }


def render(record: dict[str, Any]) -> str:
    """A record as text."""
    lines = [
        f"{record['label']} ({record['id']}): {record['state']}" + (f", {record['note']}" if record["note"] else "")
    ]
    if record["job"]:
        lines.append(f"  job {record['job']}" + (f": {record['accounting']}" if record["accounting"] else ""))
    if record["error"]:
        trace = str(record["error"].get("traceback", "")).rstrip().splitlines()
        lines += [f"  attempt {record['error'].get('attempt')}, update {record['error'].get('update')}:"]
        lines += [f"    {line}" for line in trace[-12:]]
    for name in ("", "job_"):
        if record[f"{name}lines"]:
            lines += [f"  {record[f'{name}log']}:", *[f"    {line}" for line in record[f"{name}lines"]]]
    return "\n".join(lines)


def tail(path: Path, count: int) -> list[str]:
    """The last lines of a file; [] when it cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 400 * count - 4096))
            return stream.read().decode("utf-8", "replace").splitlines()[-count:] if count > 0 else []
    except OSError:
        return []


class Shown(NamedTuple):
    """Up to where which file was printed; a file keeps its number when it is renamed."""

    file: int
    position: int


def show(path: Path, count: int) -> Shown:
    """Print the last lines of a file."""
    for line in tail(path, count):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return _end_of(path) or Shown(0, 0)


def show_more(path: Path, shown: Shown) -> Shown:
    """Print what was added since, or all of it where it is another file now."""
    end = _end_of(path)
    if end is None:  # it is being renamed
        return shown
    begin = shown.position if end.file == shown.file and shown.position <= end.position else 0
    with contextlib.suppress(OSError), path.open("rb") as stream:
        stream.seek(begin)
        sys.stdout.write(stream.read(end.position - begin).decode("utf-8", "replace"))
        sys.stdout.flush()
    return end


def _end_of(path: Path) -> Shown | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return Shown(found.st_ino, found.st_size)
