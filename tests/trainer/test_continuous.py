"""Episodes that do not wait for each other: the same as in lock step, in whatever order replies and steps arrive."""

from __future__ import annotations

import random
import threading

import pytest
from corridor import Corridor, Pool
from test_gradients import make_policy

from algorithms.collector import Collector, Episode, rollout_columns
from algorithms.generation import BatchEngine, Reply, request_seed
from benchmarks.base import StepResult
from benchmarks.stepping import BatchStepper, ThreadStepper, WorkerStepper, stepper

COMMANDS = ("go left", "go right", "wait")


def choose(prompt: list[int], seed: int) -> str:
    return COMMANDS[(sum(prompt) + seed) % 3]


class Shuffled:
    """A streaming engine that finishes some of its requests at a time, in a random order."""

    lockstep = False

    def __init__(self, policy, order: int, seeded: bool = True):
        self.policy, self.random, self.seeded = policy, random.Random(order), seeded
        self.requests: list[tuple[int, list[int], int]] = []
        self.asked = 0

    @property
    def waiting(self):
        return len(self.requests)

    def submit(self, key, prompt, seed):
        assert key not in [k for k, _, _ in self.requests]
        self.requests.append((key, prompt, seed))
        self.asked += 1

    def advance(self):
        self.random.shuffle(self.requests)
        cut = self.random.randint(0, min(3, len(self.requests)))
        done, self.requests = self.requests[:cut], self.requests[cut:]
        return [
            Reply(key, self.policy.command_ids(choose(prompt, seed if self.seeded else 0)), None)
            for key, prompt, seed in done
        ]


class LatePool(Pool):
    """Steps one by one, and answers in a random order and late, as worker processes do."""

    def __init__(self, slots: int, size: int, order: int):
        super().__init__(slots, size)
        self.random, self.under_way = random.Random(order), []

    def send(self, slot: int, action: str) -> None:
        assert slot not in [s for s, _ in self.under_way]
        self.under_way.append((slot, action))

    def ready(self, wait_for_one: bool) -> list[tuple[int, StepResult]]:
        self.random.shuffle(self.under_way)
        cut = self.random.randint(min(1, len(self.under_way)) if wait_for_one else 0, len(self.under_way))
        done, self.under_way = self.under_way[:cut], self.under_way[cut:]
        return [(slot, self.step([(slot, action)])[0]) for slot, action in done]


class RemotePool(Pool):
    remote = True


def play(engine_of, pool, seed=3):
    policy = make_policy()
    tasks = policy.benchmark.task_set("train", 6).tasks
    episodes = [Episode(task, task.id, i) for task in tasks for i in range(2)]
    collector = Collector(policy.benchmark, policy, pool, horizon=6, state_key="full", history=2)
    engine = engine_of(policy)
    collector.collect(episodes, engine, seed=seed)
    return rollout_columns(episodes), engine


def lockstep(policy):
    return BatchEngine(lambda prompts: ([policy.command_ids(choose(p, 0)) for p in prompts], None))


@pytest.mark.parametrize("order", range(5))
@pytest.mark.parametrize("kind", ["local", "workers", "remote"])
def test_greedy_episodes_are_those_of_the_lock_step_loop(kind, order):
    pool = {"local": Pool(12, 6), "workers": LatePool(12, 6, order), "remote": RemotePool(12, 6)}[kind]
    expected, _ = play(lockstep, Pool(12, 6))
    got, engine = play(lambda policy: Shuffled(policy, order, seeded=False), pool)
    assert got == expected
    assert len(set(expected["step"])) > 1
    assert engine.asked == len(got["step"])  # what has ended generates nothing


@pytest.mark.parametrize("order", range(5))
def test_sampled_episodes_depend_on_the_seed_and_not_on_the_order(order):
    expected, _ = play(lambda policy: Shuffled(policy, 99), Pool(12, 6))
    assert play(lambda policy: Shuffled(policy, order), LatePool(12, 6, order))[0] == expected
    assert play(lambda policy: Shuffled(policy, order), LatePool(12, 6, order), seed=4)[0] != expected


def test_seeds_are_those_of_every_machine_and_differ_by_each_part():
    assert request_seed(3, "1/0", 2, 5) == 9114727722287151980
    seeds = {request_seed(s, g, i, t) for s in (1, 2) for g in ("1/0", "1/1") for i in (0, 1) for t in (0, 1)}
    assert len(seeds) == 16
    assert request_seed("1", "12") != request_seed("11", "2")
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_thread_steps_while_the_caller_goes_on():
    entered, leave = threading.Event(), threading.Event()

    class Slow(RemotePool):
        def step(self, actions):
            entered.set()
            leave.wait(10)
            return super().step(actions)

    pool = Slow(3, 6)
    pool.reset(Corridor().task_set("train", 3).tasks)
    steps = stepper(pool)
    assert isinstance(steps, ThreadStepper)
    steps.send(0, "wait")
    entered.wait(10)
    steps.send(1, "wait")
    steps.send(2, "wait")
    assert steps.ready(wait=False) == []
    leave.set()
    assert [slot for slot, _ in steps.ready(wait=True)] == [0]
    assert [slot for slot, _ in steps.ready(wait=True)] == [1, 2]  # one batch of what came meanwhile
    assert steps.ready(wait=True) == []
    steps.close()


def test_an_environment_that_fails_ends_the_collection():
    class Broken(RemotePool):
        def step(self, actions):
            raise OSError("no server")

    with pytest.raises(OSError, match="no server"):
        play(lambda policy: Shuffled(policy, 1), Broken(12, 6))


def test_the_way_to_step_follows_the_pool():
    assert isinstance(stepper(Pool(1, 6)), BatchStepper)
    assert isinstance(stepper(LatePool(1, 6, 0)), WorkerStepper)
    assert BatchStepper(Pool(1, 6)).ready(wait=True) == []
