"""Demonstrations played in several processes."""

import functools
import multiprocessing
import os
import signal

import pytest
from corridor import Corridor

import benchmarks
from algorithms.demonstrations import demonstrate, processes_for


class Faulty(Corridor):
    """A corridor whose second task fails, or takes the process with it."""

    def __init__(self, deadly: bool):
        super().__init__()
        self.deadly = deadly

    def demonstrations(self, tasks, runs, seed):
        if tasks[0].id == self.task_set("train", 1, 1).tasks[0].id:
            if self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyError("no way there")
        return super().demonstrations(tasks, runs, seed)


def test_any_number_of_processes_plays_the_same():
    load = functools.partial(benchmarks.load, "worlds", success_reward=10.0)
    tasks = load().task_set("train", 7).tasks
    here = [list(load().demonstrations([task], 2, 5)) for task in tasks]
    assert sum(map(len, here)) > 7
    for processes in (1, 2, 3):
        assert list(demonstrate(load, tasks, 2, 5, processes)) == here
    assert list(demonstrate(load, tasks[:1], 2, 5, 4)) == here[:1]
    assert list(demonstrate(load, [], 2, 5, 2)) == []


@pytest.mark.parametrize(("deadly", "message"), [(False, "no way there"), (True, "exit code -9.*memory")])
def test_a_process_that_fails_or_dies_is_one_clear_error(deadly, message):
    load = functools.partial(Faulty, deadly)
    with pytest.raises(RuntimeError, match=f"(?s){message}"):
        list(demonstrate(load, load().task_set("train", 6).tasks, 1, 0, 2))
    assert not multiprocessing.active_children()


def test_no_process_outlives_a_caller_that_stops_early():
    load = functools.partial(benchmarks.load, "worlds", success_reward=10.0)
    played = demonstrate(load, load().task_set("train", 40).tasks, 5, 0, 2)
    next(played)
    assert len(multiprocessing.active_children()) == 2
    played.close()
    assert not multiprocessing.active_children()


def test_few_tasks_are_not_worth_a_second_process(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [processes_for(tasks) for tasks in (0, 1, 400, 500, 1000, 10**6)] == [1, 1, 1, 2, 4, 8]
