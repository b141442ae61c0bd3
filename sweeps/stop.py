"""A request to stop at the next good moment: made by a signal or by a file, obeyed at the end of an update.

A job's program sets the file for all processes of a run, which may be on other nodes; each process also listens itself.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

REQUEUE = 85  # exit code: stopped on request, everything saved, to be started again
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
VARIABLE = "CREDITBENCH_STOP_FILE"

_signaled = False


class StopRequested(BaseException):
    """A run stopped on request, after a checkpoint; not a failure."""


def file_of(run: Path) -> Path:
    """The file that asks a run to stop."""
    return run / ".stop"


def listen() -> None:
    """SIGTERM and SIGUSR1 become requests in this process; a further one changes nothing."""
    for number in SIGNALS:
        signal.signal(number, note)


def note(_number: int, _frame: FrameType | None) -> None:
    """The handler: remember the request."""
    global _signaled
    _signaled = True


def requested() -> bool:
    """Whether this process was asked to stop."""
    path = os.environ.get(VARIABLE)
    return _signaled or (path is not None and Path(path).exists())
