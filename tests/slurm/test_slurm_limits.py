"""A Slurm with MaxArraySize 11: arrays are cut, and limits on what runs at a time hold over all of them."""

from __future__ import annotations

import json

import pytest
from slurm_sandbox import sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def slurm():
    yield from sandbox(27200, SANDBOX_MAXARRAY="11")


def test_arrays_are_cut_at_the_limit(store):
    done = store.submit("--json")
    report = json.loads(done.stdout)
    assert len(report["arrays"]) == 2
    assert report["cells"] == 12
    sizes = [
        len(json.loads(path.read_text())["tasks"])
        for path in sorted((store.out / "submissions").glob("*/submission.json"))
    ]
    assert sizes == [11, 1]
    assert set(store.settled().values()) == {"done"}


def test_a_limit_on_what_runs_holds_over_arrays(store):
    report = json.loads(store.submit("--json", "--concurrent", "1").stdout)
    scripts = [path.read_text() for path in sorted((store.out / "submissions").glob("*/*_submission.sh"))]
    assert all("%1" in script for script in scripts)
    assert f"--dependency=afterany:{report['arrays'][0]}" in scripts[1]
    most = 0
    for _ in range(200):
        states = list(store.states().values())
        most = max(most, states.count("running"))
        if set(states) == {"done"}:
            break
    assert set(states) == {"done"}
    assert most <= 1
