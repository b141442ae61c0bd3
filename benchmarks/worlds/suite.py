"""The worlds as a benchmark of the common trainer: tasks, text, prompts, an expert."""

from __future__ import annotations

import difflib
import functools
import hashlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from benchmarks.base import EnvironmentPool, Observation, ParsedAction, StepResult, StepView, Task, TaskSet
from benchmarks.worlds import exact
from benchmarks.worlds.catalog import KINDS, LETTERS, PASSAGES, make_world
from benchmarks.worlds.sokoban import WORDS
from benchmarks.worlds.world import World

LABEL = "worlds-v1"
SPLITS = {"train": 0, "valid_seen": 100_000, "valid_unseen": 200_000}  # first seed of each
TASKS = 4096  # of a split
HORIZON = 50  # of demonstrations
DAWDLE = 0.25  # share of the expert's steps taken at random, so that there is something left to learn
_FIELDS = ("[task]", "[obs]", "[prev]", "[act]", ";", "none")
_NUMBERS = tuple(map(str, range(20)))
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)

# sizes of the worlds of a seed; kinds that are not here differ by the seed itself
_SIZES: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "detour": lambda rng: {
        "length": rng.randint(4, 7),
        "detour": rng.randint(1, 4),
        "junction": rng.randint(0, 2),
    },
    "key_and_door": lambda rng: {"rooms": rng.randint(3, 5)},
    "recovery": lambda rng: {"stages": rng.randint(1, 3), "climb": rng.randint(1, 3)},
    "optional_stop": lambda rng: {"rounds": rng.randint(3, 6), "chance": rng.choice((0.5, 0.6, 0.7, 0.8))},
    "slip": lambda rng: {"bridge": rng.randint(1, 3), "road": rng.randint(3, 6), "slip": rng.choice((0.1, 0.2, 0.3))},
}


@dataclass(frozen=True)
class Options:
    """success_reward: what a solved task pays. kinds: "all", or names of kinds separated by commas. history: past
    steps shown in a chat prompt."""

    success_reward: float = 10.0
    kinds: str = "all"
    history: int = 2

    @property
    def chosen(self) -> tuple[str, ...]:
        """Kinds in the order of the catalog. ValueError names an unknown one."""
        if self.kinds == "all":
            return tuple(KINDS)
        names = [name.strip() for name in self.kinds.split(",")]
        for name in names:
            if name not in KINDS:
                near = difflib.get_close_matches(name, KINDS, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"kinds: unknown world {name!r}{hint} (known: all, {', '.join(KINDS)})")
        return tuple(name for name in KINDS if name in names)


def parse_options(**options: Any) -> Options:
    """ValueError for an option that is unknown or of a wrong type."""
    known = [field.name for field in fields(Options)]
    for name in options:
        if name not in known:
            raise ValueError(f"unknown option {name!r} of the worlds (known: {', '.join(known)})")
    parsed = Options(**options)
    if not isinstance(parsed.kinds, str) or not parsed.chosen:
        raise ValueError(f"kinds must be names of worlds separated by commas, or all; got {parsed.kinds!r}")
    if isinstance(parsed.history, bool) or not isinstance(parsed.history, int) or parsed.history < 0:
        raise ValueError(f"history must be a whole number >= 0, got {parsed.history!r}")
    return parsed


@functools.lru_cache(maxsize=1024)
def world_of(kind: str, seed: int) -> World:
    """The world of a task."""
    sizes = _SIZES.get(kind, lambda _: {})(random.Random(f"{kind} {seed}"))
    return make_world(kind, seed=seed, **sizes)


def _world(task: Task) -> World:
    return world_of(task.payload["kind"], task.payload["seed"])


class Worlds:
    """Known worlds with text faces; a `Benchmark`.

    Tasks go through the kinds in turn. Small kinds have few variants, so their worlds come back within and between the
    splits: this is a test bed of credit assignment, not of generalization. The state keys "engine" and "full" tell all
    states apart; "observation" is the face.
    """

    name = "worlds"
    label = LABEL

    def __init__(self, options: Options) -> None:
        self.options = options
        self.success_reward = options.success_reward
        self.kinds = options.chosen

    def record(self) -> dict[str, Any]:
        """What a run's record says about its data."""
        return {"label": self.label, "kinds": list(self.kinds)}

    def task_set(self, split: str, count: int | None = None, offset: int = 0) -> TaskSet:
        """`count` tasks after `offset` of a split; ValueError when the split is unknown or too short."""
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r} of the worlds (known: {', '.join(SPLITS)})")
        count = TASKS - offset if count is None else count
        if offset < 0 or count < 1 or offset + count > TASKS:
            raise ValueError(
                f"{self.label}/{split} has {TASKS} tasks: {count} after offset {offset} are not among them"
            )
        tasks = tuple(self._task(split, index) for index in range(offset, offset + count))
        return TaskSet(self.label, split, tasks, tuple(_digest(task) for task in tasks))

    def _task(self, split: str, index: int) -> Task:
        kind = self.kinds[index % len(self.kinds)]
        return Task(f"{split}/{index:05d}-{kind}", kind, {"kind": kind, "seed": SPLITS[split] + index})

    def pool(self, slots: int, workers: int = 0) -> EnvironmentPool:
        """Slots stepped in this process: a step takes microseconds, `workers` would only slow it down."""
        return Pool(slots, self.success_reward)

    def messages(self, view: StepView) -> list[dict[str, str]]:
        """One user message: the task, the last steps, what is seen, the admissible commands, the reply format."""
        past = [f"You saw: {text}\nYou did: {action}" for text, action in view.history[-self.options.history :]]
        lines = [
            f"Task: {view.observation.goal}.",
            *(past if self.options.history else []),
            f"Step {view.step + 1} of at most {view.horizon}. You see: {view.observation.text}",
            f"You can: {', '.join(view.observation.admissible)}.",
            "Think briefly, then answer with one command inside <action> </action> tags.",
        ]
        return [{"role": "user", "content": "\n".join(lines)}]

    def parse(self, reply: str) -> ParsedAction:
        """The last <action>..</action>, lower case; without one the format is invalid and the reply is the command."""
        found = _ACTION.findall(reply.lower())
        return ParsedAction(found[-1].strip(), True) if found else ParsedAction(reply.strip().lower()[:80], False)

    def reply(self, view: StepView, action: str) -> str:
        """An expert's decision in words, for worked examples."""
        thought = f"I want to {view.observation.goal}" if not view.history else "One step further towards that"
        return f"{thought}, so now: {action}.\n<action>{action}</action>"

    def compact(self, view: StepView) -> str:
        """`[task] .. [obs] .. [prev] .. [act]` in words of the lexicon."""
        past = " ; ".join(action for _, action in view.history[-2:]) or "none"
        return f"[task] {view.observation.goal} [obs] {view.observation.text} [prev] {past} [act]"

    def lexicon(self) -> tuple[str, ...]:
        """Every word of the worlds, in a fixed order."""
        return _lexicon()

    def words(self, text: str) -> list[str]:
        """Words of prompts and commands; `" ".join` puts them back together."""
        return text.split()

    def demonstrations(self, tasks: Sequence[Task], runs: int, seed: int) -> Iterator[tuple[StepView, str]]:
        """Decisions of the best policy on walks that stray: what is shown is always a best command."""
        for task in tasks:
            for run in range(runs):
                yield from _demonstration(task, random.Random(f"{task.id} {seed} {run}"), self.success_reward)


@functools.cache
def _lexicon() -> tuple[str, ...]:
    worlds = [world_of(kind, seed) for kind in KINDS for seed in range(8)]
    texts = [text for world in worlds for text in (world.task, *world.faces, *world.actions)]
    found = sorted({word for text in texts for word in text.split()} - set(_NUMBERS) - set(LETTERS))
    return tuple(dict.fromkeys((*_FIELDS, *WORDS, *PASSAGES, *found, *_NUMBERS, *LETTERS)))


@functools.lru_cache(maxsize=8192)
def _digest_of(kind: str, seed: int) -> str:
    world = world_of(kind, seed)
    content = hashlib.sha256(repr((world.task, world.actions, world.faces, world.start)).encode())
    for table in (world.goal, world.dead, world.admissible, world.target, world.chance):
        content.update(np.ascontiguousarray(table).tobytes())
    return content.hexdigest()[:16]


def _digest(task: Task) -> str:
    return _digest_of(task.payload["kind"], task.payload["seed"])


@dataclass
class _Episode:
    """A walk. Chances are drawn from a stream of the task and the slot, so that a resumed run meets the same ones."""

    world: World
    rng: random.Random
    success_reward: float
    state: int = 0

    def observation(self) -> Observation:
        world, state = self.world, self.state
        admissible = tuple(a for a, ok in zip(world.actions, world.admissible[state], strict=True) if ok)
        keys = {name: world.keys(name)[state] for name in ("observation", "observation+admissible", "full", "engine")}
        return Observation(world.faces[state], world.task, admissible, keys)

    def step(self, command: str) -> StepResult:
        """A command that is not admissible changes nothing, costs a step and is marked."""
        world = self.world
        if world.ended[self.state]:
            raise RuntimeError("the episode is over; reset before the next action")
        command = command.strip()
        number = world.actions.index(command) if command in world.actions else len(world.actions) - 1
        admissible = bool(world.admissible[self.state, number])
        place = self.rng.choices(range(world.chance.shape[2]), world.chance[self.state, number].tolist())[0]
        self.state = int(world.target[self.state, number, place])
        won = bool(world.goal[self.state])
        reward = self.success_reward if won else 0.0
        return StepResult(self.observation(), reward, bool(world.ended[self.state]), won, admissible)


class Pool:
    """Episodes stepped in this process; an `EnvironmentPool`."""

    def __init__(self, slots: int, success_reward: float) -> None:
        if slots < 1:
            raise ValueError(f"a pool of worlds needs 1 slot or more, got {slots}")
        self.slots, self._success_reward = slots, success_reward
        self._episodes: dict[int, _Episode] = {}

    def reset(self, tasks: Sequence[Task]) -> list[Observation]:
        """Start `tasks[i]` in slot i; slots beyond them are emptied."""
        if len(tasks) > self.slots:
            raise ValueError(f"{len(tasks)} tasks do not fit into a pool of {self.slots} slots")
        self._episodes = {
            slot: _Episode(_world(task), random.Random(f"{task.id} {slot}"), self._success_reward, _world(task).start)
            for slot, task in enumerate(tasks)
        }
        return [episode.observation() for episode in self._episodes.values()]

    def step(self, actions: Sequence[tuple[int, str]]) -> list[StepResult]:
        """Send (slot, action) pairs; results come in the same order."""
        slots = [slot for slot, _ in actions]
        if len(set(slots)) != len(slots) or not set(slots) <= set(self._episodes):
            raise ValueError(f"actions name slots {sorted(slots)}; started once each: {sorted(self._episodes)}")
        return [self._episodes[slot].step(action) for slot, action in actions]

    def close(self) -> None:
        """Drop the episodes."""
        self._episodes.clear()


@functools.lru_cache(maxsize=1024)
def _best_command(kind: str, seed: int) -> tuple[str, ...]:
    """[states] a best command of each state, the first of equals."""
    world = world_of(kind, seed)
    best = np.argmax(np.where(world.admissible, exact.best_values(world), -1.0), axis=1)
    return tuple(world.actions[number] for number in best)


def _demonstration(task: Task, rng: random.Random, success_reward: float) -> Iterator[tuple[StepView, str]]:
    best = _best_command(task.payload["kind"], task.payload["seed"])
    world = _world(task)
    episode = _Episode(world, rng, success_reward, world.start)
    history: list[tuple[str, str]] = []
    for step in range(HORIZON):
        seen, command = episode.observation(), best[episode.state]
        yield StepView(seen, step, HORIZON, tuple(history[-2:])), command
        done = rng.choice(seen.admissible) if rng.random() < DAWDLE else command
        history.append((seen.text, done))
        if episode.step(done).done:
            return
