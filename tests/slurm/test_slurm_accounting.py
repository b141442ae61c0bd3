"""A Slurm with accounting: it adds a reason to what files and queue say, and changes no state."""

from __future__ import annotations

import shutil

import pytest
from slurm_sandbox import sandbox, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def slurm():
    if shutil.which("slurmdbd") is None or shutil.which("mariadbd") is None:
        pytest.skip("needs slurmdbd: SANDBOX_DBD=1 bash tests/slurm/start_slurm.sh install")
    yield from sandbox(27300, SANDBOX_DBD="1")


def test_why_adds_the_reason_that_the_accounting_knows(store):
    store.wish(grpo_1="lose", gigpo_1="fail")
    store.submit("--filter", "method=grpo,gigpo", "--filter", "seed=1")
    states = store.settled()
    assert (states["grpo-1"], states["gigpo-1"]) == ("lost", "failed")
    cell = store.cell("grpo-1")
    wait_until(lambda: "FAILED" in store.run("why", "smoke", cell["id"]).stdout, 30)
    assert f"job {cell['job']}: " in store.run("why", "smoke", cell["id"]).stdout
    store.wish()
    store.submit("--filter", "method=grpo,gigpo", "--filter", "seed=1")
    assert set(store.settled().values()) == {"done", "missing"}
