"""The cache: equal frames with and without it, and nothing stale."""

from __future__ import annotations

import json
import os
import shutil
import socket

import numpy as np
import pandas as pd
import pytest

from analysis import cache as caching
from analysis.cache import Wanted
from analysis.load import RunsError, load_runs
from analysis.synthetic import Episode, SyntheticRun, make_config, write_run

FRAMES = ("runs", "metrics", "evaluations", "episodes")


@pytest.fixture
def out(tmp_path):
    for benchmark, seed in (("alfworld", 1), ("webshop", 1), ("alfworld", 2)):
        run = SyntheticRun(make_config("grpo", seed, benchmark), updates=3)
        run.evaluations["seen_games", "after"] = [Episode("pick", True, 1.0, 5), Episode("look", False, 0.5, 6)]
        write_run(tmp_path, run, np.random.default_rng(seed))
    write_run(tmp_path, SyntheticRun(make_config("gigpo", 1), state="new"), np.random.default_rng(0))
    return tmp_path


def load(out):
    return load_runs(out, out / "cache")


def assert_equal(first, second):
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(first, name), getattr(second, name))
    assert first.configs == second.configs


def read_again(monkeypatch):
    """Names of the runs that are read from their files from now on."""
    names, read = [], caching.read_run
    monkeypatch.setattr(caching, "read_run", lambda folder: names.append(folder.name) or read(folder))
    return names


def test_cold_warm_and_without_a_cache_are_equal(out, monkeypatch):
    plain, cold = load_runs(out), load(out)
    names = read_again(monkeypatch)
    warm = load(out)
    assert names == []
    assert_equal(plain, cold)
    assert_equal(plain, warm)


@pytest.mark.parametrize(
    "changed", ["attempts/0001/metrics.jsonl", "result.json", "evaluations/seen_games/after.jsonl"]
)
def test_a_run_whose_files_changed_is_read_again_and_no_other(out, monkeypatch, changed):
    load(out)
    folder = next(path for path in sorted((out / "runs").iterdir()) if (path / changed).exists())
    path = folder / changed
    path.write_bytes(path.read_bytes().replace(b"false", b"true ").replace(b"3.5", b"4.5"))
    names = read_again(monkeypatch)
    cached = load(out)
    assert names == [folder.name]
    assert_equal(cached, load_runs(out))


def test_runs_that_came_and_went_are_seen(out):
    load(out)
    gone = next((out / "runs").iterdir())
    shutil.rmtree(gone)
    write_run(out, SyntheticRun(make_config("graft", 9), updates=2), np.random.default_rng(9))
    runs = load(out)
    assert gone.name not in set(runs.runs["run"])
    assert 9 in set(runs.runs["seed"])
    assert_equal(runs, load_runs(out))
    assert_equal(load_runs(out / "runs", out / "cache"), load_runs(out))


def test_a_process_that_died_is_seen_though_no_file_changed(out):
    folder = write_run(out, SyntheticRun(make_config("graft", 1), state="running"), np.random.default_rng(0))
    env = folder / "attempts" / "0001" / "env.json"
    assert load(out).runs.set_index("run")["state"][folder.name] == "running"
    stamp, record = env.stat(), {"pid": 2**22 + 1, "host": socket.gethostname()}
    text = json.dumps(record)
    size = stamp.st_size
    env.write_text(text + " " * (size - len(text)))
    os.utime(env, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert load(out).runs.set_index("run")["state"][folder.name] == "interrupted"


@pytest.mark.parametrize("damage", ["cut", "missing", "of another call", "not parquet"])
def test_a_damaged_cache_is_made_anew(out, damage):
    load(out)
    path = out / "cache" / "episodes.parquet"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:100])
    elif damage == "missing":
        path.unlink()
    elif damage == "not parquet":
        path.write_text("{}")
    else:
        old = path.read_bytes()
        os.utime(next((out / "runs").glob("*/config.yaml")))
        load(out)
        path.write_bytes(old)
    assert_equal(load(out), load_runs(out))
    assert_equal(load(out), load_runs(out))


def test_a_cache_that_cannot_be_written_is_done_without(out):
    (out / "cache").write_text("a file in its place")
    assert_equal(load(out), load_runs(out))


def test_a_broken_run_is_an_error_with_a_cache_too(out):
    load(out)
    path = next((out / "runs").glob("*/evaluations/*/after.jsonl"))
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(RunsError, match="1 whole rows where the header says 2"):
        load(out)


def test_no_part_of_a_file_is_left_behind(out):
    load(out)
    assert sorted(path.name for path in (out / "cache").iterdir()) == sorted(f"{name}.parquet" for name in FRAMES)


NARROW = Wanted(metrics=frozenset({"success", "absent"}), episodes=frozenset({"kind"}))


def assert_narrow(runs, whole):
    keys = ["run", "evaluation", "list", "when"]
    pd.testing.assert_frame_equal(runs.metrics, whole.metrics[["run", "attempt", "update", "success"]])
    pd.testing.assert_frame_equal(runs.episodes, whole.episodes[[*keys, "kind"]])
    pd.testing.assert_frame_equal(runs.runs, whole.runs)
    pd.testing.assert_frame_equal(runs.evaluations, whole.evaluations)


def test_only_wanted_columns_are_given_and_all_are_kept(out, monkeypatch):
    whole = load_runs(out)
    assert_narrow(load_runs(out, wanted=NARROW), whole)
    assert_narrow(load_runs(out, out / "cache", NARROW), whole)
    names = read_again(monkeypatch)
    assert_narrow(load_runs(out, out / "cache", NARROW), whole)
    assert_equal(load(out), whole)
    assert names == []
    os.utime(next((out / "runs").glob("*/config.yaml")))
    assert_narrow(load_runs(out, out / "cache", NARROW), whole)
    assert_equal(load(out), whole)
    assert len(names) == 1


def test_what_two_callers_want():
    other = Wanted(frozenset({"turns"}), None)
    assert NARROW | other == Wanted(frozenset({"success", "absent", "turns"}), None)
