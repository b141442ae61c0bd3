"""Folders that are made once by whoever needs them first."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from algorithms import building
from algorithms.building import build_once


def lock_of(target):
    return target.with_name(f".{target.name}.lock")


def test_many_at_once_build_once_and_all_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_POLL", 0.01)
    target, begun, may_end, built = tmp_path / "cache" / "thing", threading.Event(), threading.Event(), []

    def build(folder):
        built.append(folder)
        begun.set()
        assert may_end.wait(30)
        (folder / "weights").write_text("w")

    threads = [threading.Thread(target=build_once, args=(target, build)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    assert not target.exists()
    may_end.set()
    for thread in threads:
        thread.join(30)
    assert len(built) == 1
    assert [path.name for path in target.parent.iterdir()] == ["thing"]
    assert (target / "weights").read_text() == "w"
    assert build_once(target, build) == target
    assert len(built) == 1


def test_a_builder_that_failed_or_died_leaves_the_turn_to_the_next(tmp_path):
    target = tmp_path / "thing"
    with pytest.raises(ZeroDivisionError):
        build_once(target, lambda folder: 1 / 0)
    assert list(tmp_path.iterdir()) == []
    code = "import os, sys; from algorithms.building import build_once; from pathlib import Path; " \
           "build_once(Path(sys.argv[1]), lambda folder: os.kill(os.getpid(), 9))"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert done.returncode == -9
    assert lock_of(target).exists()
    build_once(target, lambda folder: (folder / "weights").write_text("w"))
    assert (target / "weights").exists()
    assert not lock_of(target).exists()


def test_a_lock_of_another_machine_without_a_sign_of_life_is_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "STALE", 0.0)
    target = tmp_path / "thing"
    lock_of(target).write_text("elsewhere 1")
    build_once(target, lambda folder: None)
    assert target.is_dir()


def test_signs_of_life_change_the_lock_until_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "BEAT", 0.001)
    lock = tmp_path / "lock"
    lock.write_text("here 1")
    before, ended = lock.stat().st_mtime_ns, threading.Event()
    thread = threading.Thread(target=building._beat, args=(lock, ended))
    thread.start()
    while lock.stat().st_mtime_ns == before:
        assert thread.is_alive()
    lock.unlink()  # taken over
    thread.join(30)
    assert not thread.is_alive()
