"""Pools: slots in this process and in workers give the same results, and failures name their cause."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.alfworld import make
from benchmarks.alfworld.workers import WorkerPool, place
from benchmarks.base import EnvironmentPool, Task

ROOT = Path(__file__).parents[2]


def play(pool: EnvironmentPool, tasks, steps: int):
    """Everything a random policy sees in all slots."""
    seen = [pool.reset(tasks)]
    rngs = [random.Random(slot) for slot in range(len(tasks))]
    current = dict(enumerate(seen[0]))
    for _ in range(steps):
        actions = [(slot, rngs[slot].choice(current[slot].admissible)) for slot in sorted(current)]
        results = pool.step(actions)
        seen.append(results)
        for (slot, _), result in zip(actions, results, strict=True):
            current[slot] = result.observation
            if result.done:
                del current[slot]
    return seen


@pytest.fixture(scope="module")
def workers(small):
    pool = small.pool(4, workers=2)
    yield pool
    pool.close()


def test_workers_give_the_results_of_this_process(small, workers):
    tasks = [task for task in small.task_set("train", 2, offset=6).tasks for _ in range(2)]
    for steps in (10, 3):  # slots are used again
        assert play(workers, tasks, steps) == play(small.pool(4), tasks, steps)


def test_single_steps_give_the_results_of_a_batch(small, workers):
    tasks = small.task_set("train", 4).tasks
    local = small.pool(4)
    first = local.reset(tasks)
    assert workers.reset(tasks) == first
    for turn in range(3):
        actions = [(slot, first[slot].admissible[turn]) for slot in range(4)]
        expected = local.step(actions)
        for slot in (2, 0, 3, 1):
            workers.send(*actions[slot])
        with pytest.raises(ValueError, match="slot 3 has a step under way"):
            workers.send(3, "look")
        with pytest.raises(RuntimeError, match="single steps are under way"):
            workers.step([(0, "look")])
        found = {}
        while len(found) < 4:
            news = workers.ready(True)
            assert news
            found.update(news)
        assert workers.ready(True) == []
        assert [found[slot] for slot in range(4)] == expected


def test_a_worker_that_dies_in_a_single_step_is_an_error(small):
    pool = small.pool(1, workers=1)
    tasks = small.task_set("train", 1).tasks
    pool.reset(tasks)
    pid = pool._workers[0].process.pid
    os.kill(pid, signal.SIGSTOP)
    pool.send(0, "look")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=f"while it played {tasks[0].id}"):
        pool.ready(True)
    assert pool.ready(True) == []


def test_a_worker_error_names_worker_task_and_cause(small):
    good = small.task_set("train", 1).tasks[0]
    bad = Task("train/000077/renamed", "pick", {**good.payload, "index": 77})
    pool = small.pool(2, workers=1)
    with pytest.raises(RuntimeError, match=r"(?s)worker 0 failed on task 'train/000077/renamed'.*Traceback.*leads to"):
        pool.reset([good, bad])
    with pytest.raises(RuntimeError, match="pool is closed"):
        pool.reset([good])
    pool.close()


def test_a_killed_worker_is_an_error(small):
    pool = small.pool(1, workers=1)
    assert isinstance(pool, WorkerPool)
    task = small.task_set("train", 1).tasks[0]
    pool.reset([task])
    process = pool._workers[0].process
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with pytest.raises(RuntimeError, match=rf"worker 0 .* exit code -9 while it played {task.id}"):
        pool.step([(0, "look")])


def test_close_ends_the_workers(small):
    pool = small.pool(2, workers=5)
    assert isinstance(pool, WorkerPool)
    processes = [worker.process for worker in pool._workers]
    assert len(processes) == 2  # no more than slots
    pool.close()
    pool.close()
    assert [process.exitcode for process in processes] == [0, 0]


def test_workers_end_with_their_parent(tmp_path):
    script = """
        import os
        from benchmarks.alfworld import make
        if __name__ == "__main__":
            benchmark = make(data="synth-small")
            pool = benchmark.pool(1, workers=1)
            pool.reset(benchmark.task_set("train", 1).tasks)
            print("ready", flush=True)
            os.kill(os.getpid(), 9)
    """
    path = tmp_path / "parent.py"
    path.write_text(textwrap.dedent(script))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # the worker writes to the same pipe: its end is read only once the worker has ended too
    command = [sys.executable, str(path)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "ready\n")


def test_tasks_stay_together_and_loads_are_equal():
    ids = [name for name in "abcd" for _ in range(4)]
    placed = place(ids, 2, {"d": 0})
    assert [list(placed.values()).count(worker) for worker in (0, 1)] == [8, 8]
    assert all(len({placed[slot] for slot in range(16) if ids[slot] == name}) == 1 for name in "abcd")
    assert placed == place(ids, 2, {"d": 0})
    assert {placed[slot] for slot in range(4)} == {place(ids, 2, {"a": 1})[0] - 1}  # home is kept
    spread = place(["a"] * 5, 2, {})
    assert sorted(list(spread.values()).count(worker) for worker in (0, 1)) == [2, 3]


@pytest.mark.parametrize(("actions", "message"), [([(3, "look")], "slot 3 has no"), ([(0, "a"), (0, "b")], "once")])
def test_wrong_slots(small, actions, message):
    pool = small.pool(4)
    pool.reset(small.task_set("train", 1).tasks)
    with pytest.raises(ValueError, match=message):
        pool.step(actions)


def test_sizes(small):
    with pytest.raises(ValueError, match="2 tasks do not fit into an ALFWorld pool of 1 slots"):
        small.pool(1).reset(small.task_set("train", 2).tasks)
    with pytest.raises(ValueError, match="needs 1 slot"):
        small.pool(0)


def test_stepping_after_the_win_is_an_error(small):
    task = small.task_set("train", 1).tasks[0]
    pool = small.pool(1)
    pool.reset([task])
    for command in small._player.episode(task).session.plan():
        (result,) = pool.step([(0, command)])
    assert (result.done, result.success, result.reward) == (True, True, small.success_reward)
    with pytest.raises(RuntimeError, match=f"the episode of {task.id} is over"):
        pool.step([(0, "look")])


def test_rewards_and_flags_before_the_win(small):
    pool = small.pool(1)
    (observation,) = pool.reset(small.task_set("train", 1).tasks)
    (bad,) = pool.step([(0, "eat fridge 1")])
    assert (bad.reward, bad.done, bad.success, bad.admissible) == (0.0, False, False, False)
    assert bad.observation.text == "Nothing happens."
    assert bad.observation.keys["engine"] == observation.keys["engine"]
    (good,) = pool.step([(0, observation.admissible[0])])
    assert good.admissible
    assert good.observation.keys["engine"] != observation.keys["engine"]


def test_keys_agree_over_engines(small):
    tasks = small.task_set("train", 1).tasks
    variants = [make(data="synth-small", caches=False), make(data="synth-small", memo=False), small]
    first, *others = [play(benchmark.pool(1), tasks, 4) for benchmark in variants]
    assert all(other == first for other in others)
    assert set(first[0][0].keys) == {"observation", "observation+admissible", "full", "engine"}


def test_a_second_thread_is_refused(small):
    tasks = small.task_set("train", 1, offset=20).tasks
    small.pool(1).reset(tasks)
    errors: list[BaseException] = []

    def reset() -> None:
        try:
            small.pool(1).reset(tasks)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=reset)
    thread.start()
    thread.join()
    assert "second thread" in str(errors[0])
    assert "workers=K" in str(errors[0])


def test_a_payload_of_another_benchmark_is_refused(small):
    task = replace(small.task_set("train", 1).tasks[0], payload={})
    with pytest.raises(ValueError, match="neither a path nor an index"):
        small.pool(1).reset([task])
