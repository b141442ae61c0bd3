"""The pool: fresh processes, logs, failures of every kind, interrupts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from sweeps.config import compose
from sweeps.local import Job, Outcome, Silent, run_jobs
from sweeps.store import RunFolder, StoreError

HERE = Path(__file__).resolve().parent


def job(tmp_path: Path, label: str, function: str, *args, run: Path | None = None) -> Job:
    return Job(label, f"fake_cells:{function}", args, tmp_path / "logs" / f"{label}.log", run)


class Recorder(Silent):
    def __init__(self):
        self.events = []
        self.most = 0

    def started(self, job):
        self.events.append(("started", job.label))

    def tick(self, running):
        self.most = max(self.most, len(running))

    def ended(self, outcome):
        self.events.append(("ended", outcome.job.label, outcome.exit_code))


def test_every_end_is_told_and_none_touches_the_others(tmp_path):
    jobs = [
        job(tmp_path, "crash", "crash"),
        job(tmp_path, "die", "die"),
        job(tmp_path, "absent", "no_such_function"),
        job(tmp_path, "good", "write", tmp_path / "out.txt", "text"),
    ]
    seen = Recorder()
    outcomes = run_jobs(jobs, workers=2, watcher=seen, interval=0.05)
    assert [outcome.exit_code for outcome in outcomes] == [1, -signal.SIGKILL, 1, 0]
    assert [outcome.job for outcome in outcomes] == jobs
    assert (tmp_path / "out.txt").read_text() == "text"
    assert outcomes[0].reason == "fell"
    assert outcomes[1].reason == "killed by SIGKILL (out of memory?)"
    assert "no_such_function" in outcomes[2].reason
    assert outcomes[3].reason == ""
    assert seen.most <= 2
    assert len(seen.events) == 8


def test_output_goes_to_the_log(tmp_path):
    (outcome,) = run_jobs([job(tmp_path, "a", "write", tmp_path / "out.txt", "x")], workers=1)
    assert outcome.log.read_text().splitlines() == ["writing out.txt", "and a warning"]


def test_jobs_are_fresh_processes_with_their_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    paths = [tmp_path / f"{i}.json" for i in range(2)]
    jobs = [job(tmp_path, path.stem, "environment", path) for path in paths]
    run_jobs(jobs, workers=1, threads=2)
    records = [json.loads(path.read_text()) for path in paths]
    assert records[0]["pid"] != records[1]["pid"]
    assert all(record["group"] == record["pid"] for record in records)
    assert all(record["OMP_NUM_THREADS"] == "2" == record["MKL_NUM_THREADS"] for record in records)
    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "runs", compose(["protocol.updates=3", "algorithm=grpo"]))


def cell(run: RunFolder) -> Job:
    return Job("cell", "fake_cells:run_cell", (run.path,), run.path / "start.log", run.path)


def wish(tmp_path: Path, what: str | None) -> None:
    (tmp_path / "wishes.json").write_text(json.dumps({"grpo-1": what}))


def test_the_log_becomes_the_attempts_own(run):
    (outcome,) = run_jobs([cell(run)], workers=1)
    assert outcome.exit_code == 0
    assert outcome.log == run.path / "attempts" / "0001" / "out.log"
    assert outcome.log.read_text() == "cell grpo-1\n"
    assert run.state() == "done"


def test_a_failed_cell_says_why_and_runs_again(run, tmp_path):
    wish(tmp_path, "crash")
    (outcome,) = run_jobs([cell(run)], workers=1)
    assert outcome.reason == "ArithmeticError: loss is not finite"
    assert "Traceback" in outcome.log.read_text()
    assert run.state() == "failed"
    wish(tmp_path, None)
    (outcome,) = run_jobs([cell(run)], workers=1)
    assert outcome.exit_code == 0
    assert outcome.log.parent.name == "0002"
    assert [row["update"] for row in run.metrics()] == [0, 1, 2]


def test_a_killed_cell_is_interrupted(run, tmp_path):
    wish(tmp_path, "die")
    (outcome,) = run_jobs([cell(run)], workers=1)
    assert outcome.exit_code == -signal.SIGKILL
    assert run.state() == "interrupted"
    assert run.error() is None


def test_a_cell_that_cannot_even_start_is_failed(run):
    broken = Job("cell", "no_such_module:run_cell", (run.path,), run.path / "start.log", run.path)
    (outcome,) = run_jobs([broken], workers=1)
    assert run.state() == "failed"
    assert "no_such_module" in outcome.reason
    assert outcome.log == run.path / "start.log"


def test_a_run_that_another_process_holds_is_left_alone(run):
    with run.start_attempt():
        (outcome,) = run_jobs([cell(run)], workers=1)
        assert "running already" in outcome.reason
        assert run.error() is None
        assert run.state() == "running"


# --- interrupts: of a real process group, as a terminal sends them

POOL = """
    import signal
    import sys
    from pathlib import Path
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script that runs pytest with & has it ignored
    sys.path.insert(0, sys.argv[1])
    from sweeps.local import Job, run_jobs
    folder = Path(sys.argv[2])
    if __name__ == "__main__":
        jobs = [Job(f"j{i}", f"fake_cells:{sys.argv[3]}", (folder,), folder / f"j{i}.log") for i in range(3)]
        try:
            run_jobs(jobs, workers=2, grace=float(sys.argv[4]), preload=["preloaded_module"])
        except KeyboardInterrupt:
            sys.exit(130)
"""


def pool(tmp_path: Path, function: str, grace: float) -> subprocess.Popen:
    """A pool in its own process group, with two of three jobs waiting."""
    script = tmp_path / "pool.py"
    script.write_text(textwrap.dedent(POOL))
    command = [sys.executable, str(script), str(HERE), str(tmp_path), function, str(grace)]
    root = {**os.environ, "PYTHONPATH": str(HERE.parent.parent)}
    process = subprocess.Popen(command, start_new_session=True, env=root)
    wait_until(lambda: len(waiting(tmp_path)) == 2 or process.poll() is not None)
    assert process.poll() is None
    return process


def waiting(tmp_path: Path) -> list[int]:
    return [int(path.name.split("-")[1]) for path in tmp_path.glob("waiting-*")]


def wait_until(condition) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def alive(pid: int) -> bool:
    from sweeps.environment import process_start

    return process_start(pid) is not None


def test_heavy_modules_are_imported_once_by_the_fork_server(tmp_path):
    script = tmp_path / "pool.py"
    script.write_text(textwrap.dedent(POOL).replace("(folder,)", "(folder / f'{i}.json',)"))
    command = [sys.executable, str(script), str(HERE), str(tmp_path), "environment", "1"]
    path = os.pathsep.join([str(HERE.parent.parent), str(HERE)])
    subprocess.run(command, check=True, timeout=60, env={**os.environ, "PYTHONPATH": path})
    assert [json.loads((tmp_path / f"{i}.json").read_text())["preloaded"] for i in range(3)] == [True] * 3


def test_an_interrupt_reaches_each_job_once_and_ends_the_pool(tmp_path):
    process = pool(tmp_path, "wait_for_interrupt", grace=30)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    pids = waiting(tmp_path)
    assert sorted(map(int, (tmp_path / "interrupts").read_text().split())) == sorted(pids)
    assert not any(map(alive, pids))
    assert len(pids) == 2  # the third never started


def test_jobs_that_ignore_an_interrupt_are_killed(tmp_path):
    process = pool(tmp_path, "ignore_interrupt", grace=0.2)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    assert not any(map(alive, waiting(tmp_path)))


def test_a_second_interrupt_kills(tmp_path):
    process = pool(tmp_path, "ignore_interrupt", grace=600)
    os.killpg(process.pid, signal.SIGINT)
    pids = waiting(tmp_path)
    for _ in range(100):  # the first one may still be on its way
        if not any(map(alive, pids)):
            break
        time.sleep(0.1)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    process.wait(30)
    assert not any(map(alive, pids))


def test_jobs_stop_when_the_pool_dies(tmp_path):
    process = pool(tmp_path, "wait_for_interrupt", grace=30)
    process.kill()
    process.wait(30)
    wait_until(lambda: not any(map(alive, waiting(tmp_path))))
    assert len((tmp_path / "interrupts").read_text().split()) == 2


# --- GPU slots


def test_each_job_sees_its_own_gpus_and_waits_for_them(tmp_path):
    paths = [tmp_path / f"{i}.json" for i in range(5)]
    jobs = [
        Job(path.stem, "fake_cells:visible", (path,), tmp_path / f"{path.stem}.log", devices=count)
        for path, count in zip(paths, (2, 1, 1, 3, 0), strict=True)
    ]
    outcomes = run_jobs(jobs, workers=5, devices=["0", "1", "5"], interval=0.05)
    assert [outcome.exit_code for outcome in outcomes] == [0] * 5
    records = [json.loads(path.read_text()) for path in paths]
    assert [len(record["gpus"]) for record in records] == [2, 1, 1, 3, 0]
    for a in records:
        for b in records:
            if a is not b and a["began"] < b["ended"] and b["began"] < a["ended"]:
                assert not set(a["gpus"]) & set(b["gpus"])


def test_more_gpus_than_there_are_is_an_error_before_anything_starts(tmp_path):
    wide = Job("wide", "fake_cells:visible", (tmp_path / "x",), tmp_path / "log", devices=4)
    with pytest.raises(StoreError, match="needs 4 GPUs and there are 2"):
        run_jobs([wide], workers=1, devices=["0", "1"])


def test_an_interrupted_job_does_not_name_its_last_line_as_the_reason(tmp_path):
    log = tmp_path / "log"
    log.write_text("update 10/30: success 0.06\n")
    assert Outcome(Job("a", "m:f", (), log), 130).reason == "interrupted"
