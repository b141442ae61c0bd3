"""Run folders: states, attempts, merging, and what crashes leave behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweeps import environment, store
from sweeps.config import compose, identity
from sweeps.files import read_json
from sweeps.store import RunFolder, StoreError


@pytest.fixture(scope="module")
def config():
    return compose(["protocol.updates=2"])


@pytest.fixture
def run(tmp_path, config):
    return RunFolder.create(tmp_path, config)


def attempt_of_a_dead_process(run: RunFolder, number: int, rows: list[dict], tail: str = "") -> Path:
    folder = run.path / "attempts" / f"{number:04d}"
    folder.mkdir(parents=True)
    gone = {"host": socket.gethostname(), "pid": 2**22 + 1, "process_start": "x"}
    (folder / "env.json").write_text(json.dumps(gone))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return folder


# --- the folder


def test_create_writes_the_config_and_finds_it_again(tmp_path, config):
    run = RunFolder.create(tmp_path, config)
    assert run.id == run.path.name == identity(config)
    assert run.config() == config
    again = RunFolder.create(tmp_path, config)
    assert again.path == run.path
    assert RunFolder.open(run.path).id == run.id
    assert run.state() == "new"


def test_other_resources_are_taken_over_until_the_run_is_live_or_done(tmp_path, config):
    run = RunFolder.create(tmp_path, config)
    wanted = {**config, "resources": {**config["resources"], "rows_per_microbatch": 3}}
    assert RunFolder.create(tmp_path, wanted).path == run.path
    assert run.config() == wanted
    with run.start_attempt():
        RunFolder.create(tmp_path, config)
        assert run.config() == wanted
    run.write_result({})
    RunFolder.create(tmp_path, config)
    assert run.config() == wanted


def test_a_config_changed_by_hand_is_refused(run, config):
    path = run.path / "config.yaml"
    path.write_text(path.read_text().replace("horizon: 15", "horizon: 16"))
    with pytest.raises(StoreError, match="changed by hand"):
        RunFolder.create(run.path.parent, config)


def test_open_says_what_is_not_a_run(tmp_path):
    with pytest.raises(StoreError, match="no such folder"):
        RunFolder.open(tmp_path / "absent")
    with pytest.raises(StoreError, match=r"no config\.yaml"):
        RunFolder.open(tmp_path)


# --- states


def test_states_of_a_life(run):
    assert run.state() == "new"
    attempt = run.start_attempt()
    assert run.state() == "running"
    assert run.holder() == os.getpid()
    with pytest.raises(StoreError, match="running already"):
        run.start_attempt()
    attempt.close()
    assert run.state() == "interrupted"
    run.write_error(ValueError("no\nluck"), update=3)
    assert run.state() == "failed"
    with run.start_attempt() as second:
        assert second.number == 2
        assert run.state() == "running"
    run.write_result({"note": 1})
    assert run.state() == "done"
    with pytest.raises(StoreError, match="is done"):
        run.start_attempt()


def test_a_new_attempt_archives_the_old_error_in_its_attempt(run):
    with run.start_attempt():
        pass
    run.write_error(ValueError("no\nluck"), update=3)
    error = run.error()
    assert (error["class"], error["message"], error["attempt"], error["update"]) == ("ValueError", "no\nluck", 1, 3)
    assert "ValueError" in error["traceback"]
    with run.start_attempt():
        assert run.error() is None
    assert read_json(run.path / "attempts" / "0001" / "error.json") == error


def test_an_error_before_any_attempt_fails_the_run(run):
    run.write_error(ImportError("no torch"), None)
    assert run.state() == "failed"
    assert run.error()["attempt"] is None
    with run.start_attempt():
        assert run.state() == "running"


@pytest.mark.parametrize("content", ["", '{"schema": 1, "metr'])
def test_half_a_result_is_not_done(run, content):
    (run.path / "result.json").write_text(content)
    assert run.result() is None
    assert run.state() == "new"


def test_a_process_with_a_used_again_id_is_not_the_attempt(run):
    run.start_attempt()
    path = run.path / "attempts" / "0001" / "env.json"
    record = json.loads(path.read_text())
    assert run.state() == "running"
    path.write_text(json.dumps({**record, "process_start": "earlier"}))
    assert run.state() == "interrupted"
    path.write_text(json.dumps({**record, "host": "elsewhere"}))
    assert run.state() == "interrupted"


CLAIM = """
import sys, time
from pathlib import Path
from sweeps.store import RunFolder, StoreError
run = RunFolder.open(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
try:
    attempt = run.start_attempt()
except StoreError as error:
    print(error, flush=True)
else:
    attempt.log({"update": 0})
    print("claimed", flush=True)
    sys.stdin.readline()
"""


def claimer(run: RunFolder) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen) -> str:
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_of_concurrent_claims_exactly_one_wins(run):
    processes = [claimer(run) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(go, processes))
    assert answers.count("claimed") == 1
    assert sum("running already" in answer for answer in answers) == 2
    assert [path.name for path in (run.path / "attempts").iterdir()] == ["0001"]
    for process in processes:
        process.communicate("\n")


def test_killed_attempts_are_interrupted_and_the_next_goes_on(run):
    process = claimer(run)
    assert go(process) == "claimed"
    assert run.state() == "running"
    assert run.holder() == process.pid
    process.send_signal(signal.SIGKILL)
    while environment.process_start(process.pid):
        pass
    assert run.state() == "interrupted"  # also while the dead process waits to be collected
    process.communicate()
    with run.start_attempt() as attempt:
        assert attempt.number == 2
    assert [row["update"] for row in run.metrics()] == [0]


# --- metrics


def test_the_newest_attempt_wins_each_update(run):
    attempt_of_a_dead_process(run, 1, [{"update": i, "from": 1} for i in range(4)])
    attempt_of_a_dead_process(run, 2, [{"update": i, "from": 2} for i in (2, 3, 4)])
    attempt_of_a_dead_process(run, 10, [{"update": 4, "from": 10}])
    assert [row["from"] for row in run.metrics()] == [1, 1, 2, 2, 10]
    assert [row["update"] for row in run.metrics()] == [0, 1, 2, 3, 4]


def test_a_torn_end_of_an_attempt_is_left_out_and_counted(run):
    attempt_of_a_dead_process(run, 1, [{"update": 0}], tail='{"update": 1, "succ')
    attempt_of_a_dead_process(run, 2, [{"update": 1}])
    assert [row["update"] for row in run.metrics()] == [0, 1]
    assert run.torn_lines() == 1


def test_a_row_is_readable_at_once_and_strict(run):
    with run.start_attempt() as attempt:
        attempt.log({"update": 0, "loss": float("nan"), "timing/update": 0.5})
        assert run.metrics() == [{"update": 0, "loss": None, "timing/update": 0.5}]
        with pytest.raises(StoreError, match="number of its update"):
            attempt.log({"loss": 1.0})


def test_the_result_checks_the_metrics(run):
    with run.start_attempt() as attempt:
        attempt.log({"update": 0})
        run.write_result({"note": "x"})
        assert run.metrics_match_result()
        attempt.log({"update": 1})
        assert not run.metrics_match_result()
    result = run.result()
    assert (result["schema"], result["metrics_rows"], result["note"]) == (store.SCHEMA, 1, "x")


# --- evaluations


def test_evaluations_come_back(run):
    rows = [{"task": "a", "success": True, "score": float("nan")}]
    run.write_evaluation("training_games/after", {"list": "training_games"}, rows)
    run.write_evaluation("initial", {"list": "x"}, [])
    assert run.evaluations() == {
        "initial": ({"list": "x"}, []),
        "training_games/after": ({"list": "training_games"}, [{"task": "a", "success": True, "score": None}]),
    }
    run.write_evaluation("initial", {"list": "y"}, [])
    assert run.evaluations()["initial"][0] == {"list": "y"}


def test_an_evaluation_that_was_not_finished_is_not_there(run, monkeypatch):
    run.write_evaluation("e", {"n": 1}, [{"task": "a"}])

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(store, "atomic_write_json", fail)
    with pytest.raises(OSError, match="disk full"):
        run.write_evaluation("e", {"n": 2}, [{"task": "b"}])
    assert run.evaluations() == {}


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "a/../b", "", ".hidden", "a b"])
def test_evaluation_names_stay_inside(run, name):
    with pytest.raises(StoreError, match="evaluation name"):
        run.write_evaluation(name, {}, [])


# --- the record of the process


def test_an_attempt_records_code_and_process(run):
    with run.start_attempt() as attempt:
        record = read_json(attempt.path / "env.json")
    assert record["pid"] == os.getpid()
    assert record["host"] == socket.gethostname()
    assert {"commit", "dirty", "versions", "argv", "threads", "started"} <= set(record)
    assert "numpy" in record["versions"]
    assert "ended" in read_json(attempt.path / "env.json")


def test_attempts_leave_no_drafts(run):
    for _ in range(2):
        with run.start_attempt():
            pass
    with run.start_attempt(), pytest.raises(StoreError):
        run.start_attempt()
    assert sorted(path.name for path in (run.path / "attempts").iterdir()) == ["0001", "0002", "0003"]
    assert not list(run.path.rglob("*.tmp"))
