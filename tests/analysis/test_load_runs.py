"""Run folders read into frames."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.load import RunsError, load_runs

ROOT = Path(__file__).resolve().parents[2]
NO_PROCESS = 2**22 + 1  # above the largest process id


def test_analysis_needs_neither_torch_nor_the_layers_above():
    code = "import sys, analysis.tables, analysis.figures; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = done.stdout.split()
    assert "analysis" in loaded
    assert not {"torch", "sweeps", "benchmarks"}.intersection(loaded)


def test_frames_hold_what_the_files_say(tmp_path, finished_run):
    finished_run("grpo", seed=3, solved=5)
    runs = load_runs(tmp_path)
    record = runs.runs.iloc[0]
    assert len(runs.runs) == 1
    assert (record["run"], record["algorithm"], record["seed"], record["label"]) == ("grpo-3", "grpo", 3, "synth-v1")
    assert (record["model"], record["protocol"], record["state"], record["commit"]) == (
        "tiny",
        "quick",
        "done",
        "c0ffee",
    )
    assert runs.metrics["success"].tolist() == [0.25, 0.5, 0.5, 0.75]
    assert runs.metrics["update"].tolist() == [1, 2, 3, 4]
    assert sorted(runs.evaluations["list"]) == ["training_games", "unseen_games"]
    assert runs.episodes.groupby("list")["success"].sum().to_dict() == {"training_games": 5, "unseen_games": 5}
    assert runs.episodes["steps"].tolist()[:12] == list(range(1, 13))
    assert runs.configs["grpo-3"]["protocol"]["updates"] == 4


def test_a_root_a_folder_of_runs_and_a_list_give_the_same(tmp_path, finished_run):
    folders = [finished_run("grpo").path, finished_run("gigpo").path]
    ids = [sorted(load_runs(where).runs["run"]) for where in (tmp_path, tmp_path / "runs", folders, str(tmp_path))]
    assert ids == [["gigpo-1", "grpo-1"]] * 4
    assert list(load_runs(folders[0]).runs["run"]) == ["grpo-1"]


def test_no_run_is_an_error_that_names_the_folder(tmp_path):
    with pytest.raises(RunsError, match=f"no run in {tmp_path}"):
        load_runs(tmp_path)
    with pytest.raises(RunsError, match=r"no run in .*absent"):
        load_runs(tmp_path / "absent")


def test_one_run_in_two_places_is_an_error(tmp_path, finished_run):
    first = finished_run("grpo").path
    copy = tmp_path / "copy" / first.name
    copy.mkdir(parents=True)
    (copy / "config.yaml").write_text((first / "config.yaml").read_text())
    with pytest.raises(RunsError, match="run grpo-1 is in two places"):
        load_runs([first, copy])


def test_the_same_folder_given_twice_counts_once(finished_run):
    folder = finished_run("grpo").path
    assert len(load_runs([folder, folder]).runs) == 1


def test_states(tmp_path, new_run):
    new_run("grpo", 1)
    new_run("grpo", 2).attempt(host=socket.gethostname(), pid=NO_PROCESS)
    new_run("grpo", 3).attempt(host=socket.gethostname(), pid=os.getpid())
    new_run("grpo", 4).attempt().failed("first line\nsecond line", update=7)
    new_run("grpo", 5).attempt().done()
    new_run("grpo", 7).attempt(host=socket.gethostname(), pid=os.getpid(), ended=1.0)
    new_run("grpo", 6).attempt(host="another-machine", pid=NO_PROCESS)
    frame = load_runs(tmp_path).runs.set_index("seed")
    assert frame["state"].to_dict() == {
        1: "new", 2: "interrupted", 3: "running", 4: "failed", 5: "done", 6: "interrupted", 7: "interrupted",
    }  # fmt: skip
    assert frame["reason"][4] == "RuntimeError: first line second line (update 7)"
    assert frame["reason"][5] == ""
    assert "another host" in frame["reason"][6]


@pytest.mark.parametrize("text", ["", "{", '{"schema": NaN}', "[]"])
def test_a_half_written_result_is_not_done(tmp_path, new_run, text):
    run = new_run("grpo").attempt().failed()
    (run.path / "result.json").write_text(text)
    assert load_runs(tmp_path).runs["state"].tolist() == ["failed"]


def test_an_unreadable_error_file_still_says_failed(tmp_path, new_run):
    run = new_run("grpo").attempt()
    (run.path / "error.json").write_text("{")
    frame = load_runs(tmp_path).runs
    assert (frame["state"][0], frame["reason"][0]) == ("failed", "no reason recorded")


def test_a_resumed_run_keeps_the_newest_attempt_of_each_update(tmp_path, new_run):
    new_run("grpo").attempt([0.1, 0.2, 0.3, 0.4]).attempt([0.6, 0.7], first=3, commit="beef", dirty="1f")
    runs = load_runs(tmp_path)
    assert runs.metrics["update"].tolist() == [1, 2, 3, 4]
    assert runs.metrics["success"].tolist() == [0.1, 0.2, 0.6, 0.7]
    assert runs.metrics["attempt"].tolist() == [1, 1, 2, 2]
    assert (runs.runs["attempts"][0], runs.runs["commit"][0]) == (2, "beef+1f")


def test_attempts_are_ordered_by_number_and_not_by_name(tmp_path, new_run):
    run = new_run("grpo").attempt([0.1])
    for name, value in (("10", 0.9), ("9", 0.5)):
        folder = run.path / "attempts" / name
        folder.mkdir()
        (folder / "metrics.jsonl").write_text(f'{{"update": 1, "success": {value}}}\n')
    assert load_runs(tmp_path).metrics["success"].tolist() == [0.9]


@pytest.mark.parametrize("tail", ['{"update": 3, "suc', '{"update": 3, "success": NaN}\n', "\x00\x00\x00", "7"])
def test_a_torn_last_line_is_ignored_and_counted(tmp_path, new_run, tail):
    new_run("grpo").attempt([0.1, 0.2], tail=tail).attempt([0.3], first=3)
    runs = load_runs(tmp_path)
    assert runs.metrics["success"].tolist() == [0.1, 0.2, 0.3]
    assert runs.runs["torn_lines"].tolist() == [1]


def test_a_torn_inner_line_is_an_error_with_file_and_line(tmp_path, new_run):
    new_run("grpo").attempt([0.1], tail='{"update": 2, "suc{"update": 3}\n{"update": 4}\n')
    with pytest.raises(RunsError, match=r"0001/metrics\.jsonl:2: broken line") as error:
        load_runs(tmp_path)
    assert "\n" not in str(error.value)


def test_a_row_without_update_is_an_error(tmp_path, new_run):
    new_run("grpo").attempt(tail='{"success": 1}\n')
    with pytest.raises(RunsError, match="without the number of its update"):
        load_runs(tmp_path)


def test_logged_nulls_are_missing_numbers(tmp_path, new_run):
    new_run("grpo").attempt([0.5], tail='{"update": 2, "success": null}\n')
    assert load_runs(tmp_path).metrics["success"].isna().tolist() == [False, True]


def test_an_evaluation_with_too_few_rows_is_an_error(tmp_path, finished_run):
    path = finished_run("grpo").path / "evaluations" / "training_games-after.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    with pytest.raises(RunsError, match="11 whole rows where the header says 12"):
        load_runs(tmp_path)
    path.write_text("".join(lines)[:-30])
    with pytest.raises(RunsError, match="11 whole rows where the header says 12"):
        load_runs(tmp_path)
    path.unlink()
    with pytest.raises(RunsError, match="0 whole rows"):
        load_runs(tmp_path)


def test_missing_keys_of_an_evaluation_are_named(tmp_path, finished_run):
    folder = finished_run("grpo").path / "evaluations"
    rows = folder / "training_games-after.jsonl"
    rows.write_text(rows.read_text().replace('"kind"', '"sort"', 1))
    with pytest.raises(RunsError, match=r"training_games-after\.jsonl:1: row lacks kind"):
        load_runs(tmp_path)
    (folder / "training_games-after.json").write_text('{"list": "training_games", "when": "after"}')
    with pytest.raises(RunsError, match="header lacks list_hash, count"):
        load_runs(tmp_path)


def test_evaluations_may_lie_in_folders(tmp_path, finished_run):
    folder = finished_run("grpo").path / "evaluations"
    (folder / "training_games").mkdir()
    for suffix in ("json", "jsonl"):
        (folder / f"training_games-after.{suffix}").rename(folder / "training_games" / f"after.{suffix}")
    names = set(load_runs(tmp_path).evaluations["evaluation"])
    assert names == {"training_games/after", "unseen_games-after"}


@pytest.mark.parametrize("text", ["seed: 1\n", "algorithm: grpo\nbenchmark: {name: a}\n", "{", "7"])
def test_a_config_of_something_else_is_an_error_in_one_line(tmp_path: Path, text):
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "config.yaml").write_text(text)
    with pytest.raises(RunsError, match=r"config\.yaml: not") as error:
        load_runs(tmp_path)
    assert "\n" not in str(error.value)
