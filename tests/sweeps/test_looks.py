"""When a cell whose job is gone may be called lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweeps import looks, slurm, states

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 22 0:41 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
41 40 0:42 / /home/me/fast rw shared:3 - ext4 /dev/vdb rw
42 22 0:43 / /my\\040data rw master:1 - cifs //server/data rw
43 40 0:44 / /home/over rw - nfs4 server:/over rw
44 43 0:45 / /home/over rw - tmpfs tmpfs rw
""".splitlines()


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"), ("/homes/x", "ext4"), ("/home", "nfs4"), ("/home/me/results", "nfs4"),
        ("/home/me/fast/results", "ext4"), ("/my data/x", "cifs"), ("/home/over/x", "tmpfs"),
    ],
)  # fmt: skip
def test_the_file_system_of_a_folder(folder, kind):
    assert looks.file_system(Path(folder), MOUNTS) == kind


def test_this_machines_own_folders_are_known(tmp_path):
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    assert looks.file_system(tmp_path.resolve(), lines)
    assert looks.file_system(tmp_path, []) == ""


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    states.mark_submitted(folder, "7_0", "0001", 1.0)
    return folder


def state_of(run: Path) -> states.RunState:
    return states.read_states(run.parent.parent, [run.name], slurm.Queue())[run.name]


def test_on_a_local_disk_a_cell_is_lost_at_once(run, monkeypatch):
    monkeypatch.setattr(looks, "is_remote", lambda folder: False)
    assert state_of(run).state == "lost"
    assert [path.name for path in run.iterdir()] == ["job.json"]


def test_on_a_network_disk_two_looks_a_minute_apart_say_so(run, monkeypatch):
    monkeypatch.setattr(looks, "is_remote", lambda folder: True)
    assert state_of(run).state == "running"
    assert "may show late" in state_of(run).note
    mark = run / ".gone.7_0"
    os.utime(mark, (mark.stat().st_mtime - looks.WAIT,) * 2)
    assert state_of(run).state == "lost"
    states.mark_submitted(run, "8_0", "0002", 2.0)
    assert state_of(run).state == "running"
    assert [path.name for path in run.glob(".gone.*")] == [".gone.8_0"]


def test_what_shows_between_two_looks_counts(run, monkeypatch):
    monkeypatch.setattr(looks, "is_remote", lambda folder: True)
    assert state_of(run).state == "running"
    (run / "result.json").write_text("{}")
    assert state_of(run).state == "done"
