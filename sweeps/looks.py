"""Files that another machine wrote may show late on a network file system: what is not there is looked for twice.

NFS clients keep listings and attributes for up to a minute. A cell whose job is gone counts as lost only when its files
are still missing `WAIT` seconds after that was first seen; the first look leaves a mark in the run's folder. Ages are
differences of modification times, which the server sets: clocks of machines differ.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

WAIT = 60.0
_REMOTE = ("nfs", "cifs", "smb", "afs", "9p", "fuse.sshfs", "fuse.glusterfs", "glusterfs")
_MARK = ".gone."


def gone_for_good(run: Path, job: str) -> bool:
    """Whether a run whose job is gone may be called lost: at once on a local disk, else from the second look on."""
    if not is_remote(run.parent):
        return True
    mark = run / f"{_MARK}{job}"
    try:
        os.listdir(run)  # makes an NFS client ask the server again
        mark.touch(exist_ok=False)
    except FileExistsError:
        return _now(run) - mark.stat().st_mtime >= WAIT
    except OSError:  # a store that only can be read: nobody submits from it
        return True
    return False


def forget(run: Path) -> None:
    """Remove the marks of earlier jobs."""
    for mark in run.glob(f"{_MARK}*"):
        mark.unlink(missing_ok=True)


def _now(folder: Path) -> float:
    """The file server's time."""
    probe = folder / f".look.{os.getpid()}.tmp"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


@functools.lru_cache(maxsize=64)
def is_remote(folder: Path) -> bool:
    """Whether a folder lies on a file system that other machines write to and this one caches."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return file_system(folder.resolve(), lines).startswith(_REMOTE)


def file_system(folder: Path, mountinfo: list[str]) -> str:
    """The type of the file system that a folder lies on, by the lines of /proc/self/mountinfo; "" when none holds it.

    Of the mounts above the folder the deepest counts, of several in one place the last.
    """
    deepest, kind = -1, ""
    for line in mountinfo:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].replace("\\040", " ")
        if folder.is_relative_to(point) and len(Path(point).parts) >= deepest:
            deepest, kind = len(Path(point).parts), after.split(" ")[0]
    return kind
