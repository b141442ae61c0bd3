"""States of cells from files and a queue; what is submitted, in which arrays; the lock; a crash's remains."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest
import yaml

from sweeps import environment, explain, grid, plan, slurm, snapshot, states, status, submission, submit, upkeep
from sweeps.files import StoreError, atomic_write_json
from sweeps.schema import ConfigError
from sweeps.store import RunFolder

GRID = """
common: {protocol.updates: 3, benchmark.options.data: synth-small}
axes: {algorithm: [grpo, graft], seed: [1, 2]}
"""


@pytest.fixture(scope="module")
def planned():
    return plan.make(grid.parse("mine", yaml.safe_load(GRID)))


@pytest.fixture
def out(tmp_path, planned):
    submit.create(tmp_path, planned, list(planned.runs.values()))
    return tmp_path


def runs(out, planned):
    return [RunFolder(out / "runs" / run) for run in planned.runs]


def queue(**jobs: str) -> slurm.Queue:
    """Element -> state code."""
    made = {key.replace("j", "").replace("x", "_"): code for key, code in jobs.items()}
    return slurm.Queue({job: slurm.QueuedJob(job, code, "Priority", "name") for job, code in made.items()})


def state_of(out, planned, known=None):
    return [state.state for state in states.read_states(out, planned.runs, known).values()]


def test_every_state(out, planned):
    assert state_of(out, planned) == ["missing"] * 4
    one, two, three, four = runs(out, planned)
    with one.start_attempt() as attempt:
        assert state_of(out, planned)[0] == "running"
        attempt.log({"update": 1})
    assert state_of(out, planned)[0] == "lost"
    for element, run in enumerate((one, two, three, four)):
        states.mark_submitted(run.path, f"7_{element}", "0001", 1.0)
    assert state_of(out, planned, queue(j7x0="R", j7x1="PD", j7x2="CG")) == ["running", "queued", "running", "lost"]
    assert state_of(out, planned, queue(j7x0="XX", j7x1="RQ")) == ["running", "queued", "lost", "lost"]
    assert state_of(out, planned, slurm.Queue(problem="down")) == ["unknown"] * 4
    one.write_error(ValueError("no"), None)
    states.mark_cancelled(two.path, 2.0)
    three.write_result({})
    assert state_of(out, planned, queue()) == ["failed", "cancelled", "done", "lost"]
    assert state_of(out, planned, slurm.Queue(problem="down")) == ["failed", "cancelled", "done", "unknown"]
    assert state_of(out, planned, queue(j7x0="R", j7x1="R", j7x2="R")) == ["running", "running", "done", "lost"]


def test_a_run_that_writes_nothing_for_long_is_doubted(out, planned):
    run = runs(out, planned)[0]
    states.mark_submitted(run.path, "7_0", "0001", 1.0)
    cells = [one.cell for one in planned.cells]

    def shown():
        known = states.read_states(out, planned.runs, queue(j7x0="R"))
        return known[run.id], status.render(status.View("mine", None, cells, known))

    assert shown()[0] == states.RunState("running", "", "7_0")  # it has not begun to write
    with run.start_attempt() as attempt:
        attempt.log({"update": 1})
        log = attempt.path / "metrics.jsonl"
        assert "stalled" not in shown()[1]
        os.utime(log, (log.stat().st_mtime - states.SILENCE - 60,) * 2)
        state, text = shown()
        assert (state.state, state.note) == ("running", "stalled? it wrote nothing for 61 minutes")
        assert f"{run.id}  running" in text
        (attempt.path / "out.log").write_text("evaluating\n")
        assert shown()[0].note == ""


def test_submitting_again_ends_a_failure_and_a_cancellation(out, planned):
    one, two, *_ = runs(out, planned)
    with one.start_attempt():
        one.write_error(ValueError("no"), None)
    states.mark_cancelled(two.path, 2.0)
    for run in (one, two):
        states.mark_submitted(run.path, "8_0", "0002", 1.0)
    assert state_of(out, planned, queue())[:2] == ["lost", "lost"]
    assert json.loads((one.path / "attempts" / "0001" / "error.json").read_text())["class"] == "ValueError"


def test_a_damaged_result_is_not_done(out, planned):
    run = runs(out, planned)[0]
    (run.path / "result.json").write_text('{"schema": 1')
    assert state_of(out, planned)[0] == "missing"
    view = status.View("mine", None, [one.cell for one in planned.cells], states.read_states(out, planned.runs))
    assert any("result.json" in line for line in upkeep.check(out, view))


def test_fsck_sees_a_changed_configuration_and_changed_metrics(out, planned):
    one, two, *_ = runs(out, planned)
    text = (one.path / "config.yaml").read_text()
    (one.path / "config.yaml").write_text(text.replace("updates: 3", "updates: 4"))
    with two.start_attempt() as attempt:
        attempt.log({"update": 1})
    two.write_result({})
    (two.path / "attempts" / "0001" / "metrics.jsonl").write_text('{"update": 2}\n')
    view = status.View("mine", None, [cell.cell for cell in planned.cells], states.read_states(out, planned.runs))
    found = upkeep.check(out, view)
    assert len(found) == 2
    assert "config.yaml: was changed" in found[0]
    assert "metrics" in found[1]


def test_exit_codes_and_table(out, planned):
    cells = [one.cell for one in planned.cells]

    def view(*names):
        known = {cell.id: states.RunState(name) for cell, name in zip(cells, names, strict=True)}
        return status.View("mine", None, cells, known)

    assert view("done", "done", "done", "done").exit_code == 0
    assert view("done", "failed", "queued", "done").exit_code == 1
    assert view("done", "lost", "unknown", "done").exit_code == 1
    assert view("done", "missing", "queued", "cancelled").exit_code == 2
    assert view("done", "missing", "unknown", "done").exit_code == 3
    text = status.render(view("done", "failed", "queued", "done"))
    assert "grpo    1/2 done, 1 queued" in text
    assert "graft   1/2 done, 1 failed" in text


# --- what is submitted


def test_only_wanted_states_filters_and_a_maximum(planned):
    known = dict(zip(planned.runs, map(states.RunState, ("done", "failed", "lost", "missing")), strict=True))
    chosen = [one.cell.id for one in submit.choose(planned, known, submit.Options())]
    assert chosen == list(planned.runs)[1:]
    only = submit.Options(only=("failed",))
    assert [one.cell.id for one in submit.choose(planned, known, only)] == [list(planned.runs)[1]]
    most = submit.Options(most=1, filters=({"seed": ["2"]},))
    assert [one.cell.id for one in submit.choose(planned, known, most)] == [list(planned.runs)[2]]


def cells_of(count, **job):
    made = grid.parse("big", {"axes": {"seed": list(range(count))}, "resources": [job]})
    return plan.make(made).cells


@pytest.mark.parametrize(
    ("count", "size", "concurrent", "expected"),
    [
        (25, 10, None, [(10, None, False), (10, None, False), (5, None, False)]),
        (25, 10, 7, [(10, 3, False), (10, 2, False), (5, 2, False)]),
        (25, 10, 2, [(10, 2, False), (10, 2, True), (5, 2, True)]),
        (0, 10, 3, []),
    ],
)
def test_arrays_are_cut_and_their_limits_hold_together(count, size, concurrent, expected):
    made = submit.arrays(cells_of(count) if count else [], size, concurrent)
    assert [(len(array.tasks), array.limit, array.chained) for array in made] == expected


def test_packing_fills_elements():
    made = submit.arrays(cells_of(10, pack=4), 2, None)
    assert [[len(task) for task in array.tasks] for array in made] == [[4, 4], [2]]


def test_the_script_says_what_it_must(out, planned):
    chunk = submit.arrays(planned.cells, 1000, 2)[0]
    text = submission.preview(out, "mine", chunk) if slurm.available() else ""
    if not text:
        pytest.skip("submitit needs srun on the path")
    assert "#SBATCH --array=0-3%2" in text
    assert "#SBATCH --hold" in text
    assert "#SBATCH --signal=B:USR1@300" in text
    assert "wckey" not in text
    assert "exec " in text.splitlines()[-2] or "exec " in text.splitlines()[-1]
    assert text.index("exec ") == text.rindex("exec ")


def test_a_submission_from_a_job_does_not_inherit_it(monkeypatch):
    for name in ("SLURM_MEM_PER_CPU", "SBATCH_ACCOUNT", "PMIX_RANK", "SLURM_CONF"):
        monkeypatch.setenv(name, "x")
    with slurm.clean_environment():
        assert [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_", "PMIX_"))] == ["SLURM_CONF"]
    assert os.environ["SLURM_MEM_PER_CPU"] == "x"


# --- one at a time


def test_a_lock_is_held_by_one(tmp_path):
    with (
        submission.lock(tmp_path),
        pytest.raises(submission.Busy, match=f"process {os.getpid()}"),
        submission.lock(tmp_path),
    ):
        pass
    with submission.lock(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_dead_process_is_taken_over_and_that_of_another_host_is_not(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    start = environment.process_start(dead.pid)
    dead.wait()
    record = {"host": socket.gethostname(), "pid": dead.pid, "process_start": start, "since": 0.0}
    atomic_write_json(tmp_path / ".lock", record)
    with submission.lock(tmp_path):
        pass
    atomic_write_json(tmp_path / ".lock", {**record, "host": "elsewhere"})
    with pytest.raises(submission.Busy, match="elsewhere"), submission.lock(tmp_path):
        pass


def test_settling_finds_what_a_crash_left(out, planned, monkeypatch):
    released = []
    monkeypatch.setattr(slurm, "release", released.append)
    nothing = snapshot.Code(None, None, None)
    ids = list(planned.runs)
    spec = planned.cells[0].job
    before = submission.new(out, "mine", [[ids[0]]], spec, nothing)  # never got to sbatch
    held = submission.new(out, "mine", [[ids[1]], [ids[2]]], spec, nothing)  # sbatch answered, nothing was written
    over = submission.new(out, "mine", [[ids[3]]], spec, nothing)
    over.state, over.job = submission.SUBMITTED, "5"
    over.write()
    live = {f"9_{i}": slurm.QueuedJob(f"9_{i}", "PD", "JobHeldUser", held.name) for i in range(2)}
    said = submission.settle(out, slurm.Queue(live))
    assert [one.state for one in submission.all_submissions(out)] == ["abandoned", "released", "released"]
    assert released == ["9"]
    assert len(said) == 2
    assert [state.job for state in states.read_states(out, ids, slurm.Queue(live)).values()] == [
        None, "9_0", "9_1", None,
    ]  # fmt: skip
    assert submission.settle(out, slurm.Queue(live)) == []
    assert before.folder.is_dir()


def test_an_array_that_comes_late_is_cancelled_when_its_cells_are_elsewhere(out, planned, monkeypatch):
    cancelled, released = [], []
    monkeypatch.setattr(slurm, "cancel", cancelled.extend)
    monkeypatch.setattr(slurm, "release", released.append)
    run, spec = next(iter(planned.runs)), planned.cells[0].job
    late = submission.new(out, "mine", [[run]], spec, snapshot.Code(None, None, None))
    submission.settle(out, slurm.Queue())
    again = submission.new(out, "mine", [[run]], spec, snapshot.Code(None, None, None))
    live = {"8_0": slurm.QueuedJob("8_0", "PD", "JobHeldUser", again.name)}
    submission.settle(out, slurm.Queue(live))
    live["7_0"] = slurm.QueuedJob("7_0", "PD", "JobHeldUser", late.name)
    (said,) = submission.settle(out, slurm.Queue(live))
    assert "came late" in said
    assert (cancelled, released) == (["7"], ["8"])
    assert states.read_states(out, [run], slurm.Queue(live))[run].job == "8_0"


def test_finishing_a_submission_keeps_marks_that_came_later(out, planned, monkeypatch):
    """A crash after the release, before it was recorded; then a cell was cancelled."""
    monkeypatch.setattr(slurm, "release", lambda job: None)
    run, spec = next(iter(planned.runs)), planned.cells[0].job
    made = submission.new(out, "mine", [[run]], spec, snapshot.Code(None, None, None))
    live = {"7_0": slurm.QueuedJob("7_0", "R", "None", made.name)}
    submission.settle(out, slurm.Queue(live))
    made.state, made.job = submission.SUBMITTED, "7"
    made.write()
    states.mark_cancelled(out / "runs" / run, 1.0)
    submission.settle(out, slurm.Queue(live))
    assert states.read_states(out, [run], slurm.Queue())[run].state == "cancelled"


# --- frozen code


def test_uncommitted_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "code_version", lambda paths=(): {"commit": "c" * 40, "dirty": "d" * 16})
    with pytest.raises(StoreError, match="--allow-dirty"):
        snapshot.take(tmp_path, allow_dirty=False)
    monkeypatch.setattr(environment, "code_version", lambda paths=(): {"commit": None, "dirty": None})
    assert snapshot.take(tmp_path, allow_dirty=False) == snapshot.Code(None, None, None)


def test_a_log_is_followed_through_its_renaming_and_into_the_next_attempt(tmp_path, capsys):
    start, first, second = tmp_path / "start.log", tmp_path / "1.log", tmp_path / "2.log"
    start.write_text("one\ntwo\n")
    shown = explain.show(start, 1)
    start.rename(first)
    assert explain.show_more(start, shown) == shown
    with first.open("a") as stream:
        stream.write("three\n")
    shown = explain.show_more(first, shown)
    second.write_text("another attempt, longer than the one before\n")
    shown = explain.show_more(second, shown)
    assert explain.show_more(second, shown) == shown
    assert capsys.readouterr().out == "two\nthree\nanother attempt, longer than the one before\n"


def test_only_states_that_can_be_submitted_can_be_asked_for(capsys):
    from sweeps.cli import main

    for seconds in ("0", "-1", "nan"):
        assert main(["status", "smoke", "--watch", seconds]) == 2
        assert "--watch must be seconds above 0" in capsys.readouterr().err

    assert main(["submit", "smoke", "--only", "done"]) == 2
    assert "missing, failed, lost, cancelled" in capsys.readouterr().err
    assert main(["plan", "smoke", "--filter", "what"]) == 2
    with pytest.raises(ConfigError):
        plan.parse_filters(["seed="])
