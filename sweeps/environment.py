"""Where and with what code an attempt runs: commit, package versions, host, process."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = (
    "creditbench", "torch", "trl", "transformers", "accelerate", "numpy", "scipy", "pandas", "alfworld", "textworld",
    "vllm", "peft",
)  # fmt: skip
CODE = ("algorithms", "analysis", "benchmarks", "sweeps")  # folders whose changes make it other code
_ROOT = Path(__file__).resolve().parent.parent


def describe() -> dict[str, Any]:
    """Record of the running process: `commit` and `dirty` (hash of the uncommitted difference; both null outside a
    checkout), `versions`, `host`, `pid`, `process_start`, `threads`, `argv`, `started` (Unix seconds)."""
    return {
        **code_version(),
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_start": process_start(os.getpid()),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "argv": sys.argv,
        "started": time.time(),
    }


def code_version(paths: Sequence[str] = CODE) -> dict[str, str | None]:
    """`commit` of this code and `dirty`, 16 hex digits over uncommitted changes of `paths` (null when there are none).

    A copy made at submission knows its own; without it and outside a checkout both are null.
    """
    frozen = _read_frozen(_ROOT / "code.json")
    if frozen is not None:
        return frozen
    if _git("rev-parse", "--show-toplevel") != str(_ROOT):
        return {"commit": None, "dirty": None}
    changes = _git("diff", "HEAD", "--", *paths) or ""
    new_files = _git("ls-files", "--others", "--exclude-standard", "--", *paths) or ""
    contents = "".join(_digest(_ROOT / name) for name in new_files.splitlines())
    record = f"{changes}\n{new_files}\n{contents}"
    dirty = hashlib.sha256(record.encode()).hexdigest()[:16] if changes or new_files else None
    return {"commit": _git("rev-parse", "HEAD"), "dirty": dirty}


def _read_frozen(path: Path) -> dict[str, str | None] | None:
    try:
        value = json.loads(path.read_bytes())
        return {"commit": value["commit"], "dirty": value["dirty"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def process_start(pid: int) -> str | None:
    """When a live process started, in a form only good for comparison; None when there is no such process.

    With the process id it names a process for good: ids are used again, start times are not. A zombie counts as gone.
    """
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        return _process_start_from_ps(pid)
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{_boot_id()}:{ticks}"


def is_live(record: dict[str, Any]) -> bool:
    """Whether the process of a `describe` record still runs, on this host; False for another host's."""
    pid, start = record.get("pid"), record.get("process_start")
    if record.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    return start is not None and process_start(pid) == start


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _process_start_from_ps(pid: int) -> str | None:
    asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
