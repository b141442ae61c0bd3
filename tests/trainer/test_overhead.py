"""The benchmark of an update's stages: every second is counted once."""

from __future__ import annotations

import pytest

from sweeps import overhead_benchmark
from sweeps.overhead_benchmark import OVERHEAD, WORK, Clock, measure, overhead_of, report

SMALL = (
    "benchmark=worlds", "protocol.state_key=observation", "protocol.group_size=2", "protocol.tasks_per_update=2",
    "protocol.horizon=3", "protocol.train.offset=0", "model.warm_start.tasks=2", "model.warm_start.steps=2",
    "protocol.checkpoint_every=1",
)  # fmt: skip


class Nested:
    def outer(self) -> str:
        return self.inner()

    def inner(self) -> str:
        return "done"

    def broken(self) -> None:
        raise ValueError("broken")


def test_a_stage_inside_another_counts_as_the_outer_one(monkeypatch):
    times = iter(range(100))
    monkeypatch.setattr(overhead_benchmark.time, "perf_counter", lambda: float(next(times)))
    clock, nested = Clock(), Nested()
    clock.wrap(nested, "inner", "inside")
    clock.wrap(nested, "outer", "outside")
    assert nested.outer() == "done"
    assert dict(clock.seconds) == {"outside": 1.0}
    assert nested.inner() == "done"
    assert dict(clock.seconds) == {"outside": 1.0, "inside": 1.0}


def test_a_failure_inside_a_stage_leaves_the_clock_usable():
    clock, nested = Clock(), Nested()
    clock.wrap(nested, "broken", "bad")
    clock.wrap(nested, "inner", "good")
    with pytest.raises(ValueError, match="broken"):
        nested.broken()
    nested.inner()
    assert set(clock.seconds) == {"bad", "good"}


def test_stages_of_real_updates_add_up(tmp_path):
    total, stages = measure("graft", 1, SMALL, tmp_path)
    assert set(stages) == {*WORK, *OVERHEAD, "rest"}
    assert sum(stages.values()) == pytest.approx(total)
    assert all(seconds > 0 for seconds in stages.values())
    assert overhead_of(stages) + sum(stages[name] for name in WORK) == pytest.approx(total)
    assert "trainer overhead" in report("graft", total, stages)
