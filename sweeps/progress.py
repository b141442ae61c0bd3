"""How far each run is, on the terminal: live bars where it is one, plain lines where it is a file or a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from sweeps.files import StoreError
from sweeps.local import Job, Outcome, Watcher
from sweeps.store import RunFolder


def watcher(updates: dict[str, int], stream: TextIO | None = None) -> Watcher:
    """The watcher that fits `stream` (stdout by default). `updates` holds each job's number of updates, by label."""
    stream = stream or sys.stdout
    return Bars(updates, Console(file=stream)) if stream.isatty() else Lines(updates, stream)


@dataclass
class Clock:
    """Progress of one job in this process's time."""

    total: int
    first: int | None = None  # updates that were done when it was first looked at
    done: int = 0
    success: float | None = None
    began: float = field(default_factory=time.monotonic)

    def read(self, job: Job) -> bool:
        """Look at the run's metrics; True when there is a new update."""
        row, count = _newest(job)
        if self.first is None:
            self.first = count
        news = count > self.done
        self.done, self.success = count, row.get("success")
        return news

    @property
    def elapsed(self) -> float:
        """Seconds since the job began."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float | None:
        """Seconds to go at the pace so far; None before the first update."""
        here = self.done - (self.first or 0)
        return self.elapsed / here * (self.total - self.done) if here > 0 else None

    def text(self) -> str:
        """`success 54% | 0:41 to go`, as far as known."""
        parts = []
        if self.success is not None:
            parts.append(f"success {100 * self.success:3.0f}%")
        if self.left is not None:
            parts.append(f"{duration(self.left)} to go" if self.done < self.total else "evaluating")
        return " | ".join(parts) or "starting"


def duration(seconds: float) -> str:
    """`m:ss`, or `h:mm:ss` from one hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def stopping_text(running: Sequence[Job]) -> str:
    """What is said after an interrupt."""
    names = ", ".join(job.label for job in running) or "nothing"
    return f"stopping; waiting for {names} to end (interrupt again to kill)"


class Lines:
    """A line when a job starts, at every few updates, and when it ends."""

    def __init__(self, updates: dict[str, int], stream: TextIO, every: int = 4) -> None:
        self._updates = updates
        self._stream = stream
        self._every = every
        self._clocks: dict[str, Clock] = {}
        self._ended = 0

    def started(self, job: Job) -> None:
        self._clocks[job.label] = Clock(self._updates.get(job.label, 0))
        self._say(f"{job.label}: started")

    def tick(self, running: Sequence[Job]) -> None:
        for job in running:
            clock = self._clocks[job.label]
            if clock.read(job) and (clock.done % self._every == 0 or clock.done == clock.total):
                self._say(f"{job.label}: update {clock.done}/{clock.total} | {clock.text()}")

    def ended(self, outcome: Outcome) -> None:
        self._ended += 1
        clock = self._clocks[outcome.job.label]
        how = f"FAILED: {outcome.reason}" if outcome.exit_code else f"done in {duration(clock.elapsed)}"
        self._say(f"{outcome.job.label}: {how} ({self._ended} of {len(self._updates)})")

    def stopping(self, running: Sequence[Job]) -> None:
        self._say(stopping_text(running))

    def _say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class Bars:
    """One live bar a running job; finished jobs leave one line each above them."""

    def __init__(self, updates: dict[str, int], console: Console) -> None:
        self._updates = updates
        self._clocks: dict[str, Clock] = {}
        self._bars: dict[str, TaskID] = {}
        self._ended = 0
        self._progress = Progress(
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            transient=True,
        )
        self._progress.start()

    def started(self, job: Job) -> None:
        total = self._updates.get(job.label, 0)
        self._clocks[job.label] = Clock(total)
        self._bars[job.label] = self._progress.add_task(job.label, total=total or None, text="starting")

    def tick(self, running: Sequence[Job]) -> None:
        for job in running:
            clock = self._clocks[job.label]
            clock.read(job)
            self._progress.update(self._bars[job.label], completed=clock.done, text=clock.text())

    def ended(self, outcome: Outcome) -> None:
        self._ended += 1
        label = outcome.job.label
        clock = self._clocks[label]
        self._progress.remove_task(self._bars.pop(label))
        how = f"FAILED: {outcome.reason}" if outcome.exit_code else f"done in {duration(clock.elapsed)}"
        self._progress.console.print(
            f"{label}: {how} ({self._ended} of {len(self._updates)})", markup=False, highlight=False
        )
        if self._ended == len(self._updates):
            self.close()

    def stopping(self, running: Sequence[Job]) -> None:
        self.close()
        self._progress.console.print(stopping_text(running), markup=False, highlight=False)

    def close(self) -> None:
        """Take the bars off the screen."""
        self._progress.stop()


def _newest(job: Job) -> tuple[dict[str, Any], int]:
    """The newest row of the job's metrics and the number of updates done."""
    if job.run is None:
        return {}, 0
    try:
        rows = RunFolder(job.run).metrics()
    except (StoreError, KeyError):
        return {}, 0
    return (rows[-1], len(rows)) if rows else ({}, 0)
