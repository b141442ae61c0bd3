"""What a terminal or a log shows of running jobs."""

from __future__ import annotations

import io

from rich.console import Console

from sweeps.config import compose
from sweeps.local import Job, Outcome
from sweeps.progress import Bars, Lines, duration, watcher
from sweeps.store import RunFolder


def started_run(tmp_path):
    run = RunFolder.create(tmp_path, compose(["protocol.updates=5"]))
    return run, Job("graft seed 1", "x:y", (), tmp_path / "log", run.path)


def test_durations():
    assert [duration(s) for s in (0, 59.6, 61, 3600)] == ["0:00", "1:00", "1:01", "1:00:00"]


def test_lines_for_a_file(tmp_path):
    run, job = started_run(tmp_path)
    out = io.StringIO()
    lines = Lines({job.label: 5, "other": 5}, out)
    lines.started(job)
    with run.start_attempt() as attempt:
        for update in range(5):
            attempt.log({"update": update, "success": 0.25})
            lines.tick([job])
    lines.tick([job])
    lines.ended(Outcome(job, 0))
    text = out.getvalue().splitlines()
    assert text[0] == "graft seed 1: started"
    assert text[1].startswith("graft seed 1: update 4/5 | success  25% | 0:0")
    assert text[2] == "graft seed 1: update 5/5 | success  25% | evaluating"
    assert text[3].startswith("graft seed 1: done in 0:0")
    assert text[3].endswith("(1 of 2)")
    assert len(text) == 4


def test_a_failure_is_told_with_its_reason(tmp_path):
    run, job = started_run(tmp_path)
    out = io.StringIO()
    lines = Lines({job.label: 5}, out)
    lines.started(job)
    run.write_error(ValueError("no [luck]"), 2)
    lines.ended(Outcome(job, 1))
    assert "FAILED: ValueError: no [luck] (1 of 1)" in out.getvalue()


def test_bars_for_a_terminal(tmp_path):
    run, job = started_run(tmp_path)
    out = io.StringIO()
    bars = Bars({job.label: 5}, Console(file=out, force_terminal=True, width=100))
    bars.started(job)
    with run.start_attempt() as attempt:
        attempt.log({"update": 0, "success": 0.5})
    bars.tick([job])
    bars.stopping([job])
    assert "waiting for graft seed 1 to end" in out.getvalue()
    bars.ended(Outcome(job, 0))
    assert "graft seed 1: done in" in out.getvalue()


def test_the_watcher_fits_the_stream():
    assert isinstance(watcher({}, io.StringIO()), Lines)
