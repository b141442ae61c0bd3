"""Folders that are made once, whoever asks for them: cached weights and warm starts.

Many jobs may start together on many machines and need the same folder. One builds; the others wait for it, and go on
by themselves when it has died: its lock stops changing, or its process is gone from this machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BEAT, STALE = 10.0, 120.0  # seconds between signs of life; without one for so long a builder is dead (NFS caches 60 s)
_POLL = 0.5


def build_once(target: Path, build: Callable[[Path], object]) -> Path:
    """Fill a folder through `build(folder)` under a temporary name and rename it into place; a half-made one never
    shows. Others who want the same folder wait meanwhile. Should two build after all, one result stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _turn(target) as mine:
        if mine:
            _build(target, build)
    return target


def _build(target: Path, build: Callable[[Path], object]) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        build(staging)
        staging.chmod(0o755)
        try:
            os.rename(staging, target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _turn(target: Path) -> Iterator[bool]:
    """Whether it is this caller's turn to build; False once the folder is there."""
    lock = target.with_name(f".{target.name}.lock")
    if not _take(lock, target):
        yield False
        return
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(lock, ended), name="sign of life", daemon=True)
    beating.start()
    try:
        yield not target.is_dir()
    finally:
        ended.set()
        beating.join()
        lock.unlink(missing_ok=True)


def _beat(lock: Path, ended: threading.Event) -> None:
    while not ended.wait(BEAT):
        try:
            os.utime(lock)
        except OSError:  # taken over by someone who saw no sign of life
            return


def _take(lock: Path, target: Path) -> bool:
    """Take the lock as soon as it is free or its holder dead; False when the folder shows before."""
    seen, since = 0, time.monotonic()
    while not target.is_dir():
        try:
            with lock.open("x", encoding="utf-8") as stream:
                stream.write(f"{socket.gethostname()} {os.getpid()}")
            return True
        except FileExistsError:
            pass
        try:
            newest, holder = lock.stat().st_mtime_ns, lock.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        if newest != seen:
            seen, since = newest, time.monotonic()
        if time.monotonic() - since > STALE or _is_gone(holder):
            lock.unlink(missing_ok=True)
        else:
            time.sleep(_POLL)
    return False


def _is_gone(holder: str) -> bool:
    """Whether the process of a lock ran on this machine and has ended."""
    host, _, pid = holder.partition(" ")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
