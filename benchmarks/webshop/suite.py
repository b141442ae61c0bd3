"""WebShop as a benchmark: what the trainer sees."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.base import EnvironmentPool, ParsedAction, StepView, Task, TaskSet
from benchmarks.webshop import compact, default, goals, oracle, protocol, shop, thoughts
from benchmarks.webshop.episode import Episode
from benchmarks.webshop.goals import Goal
from benchmarks.webshop.options import Options
from benchmarks.webshop.pool import Pool
from benchmarks.webshop.store import Store

LEAKS = (
    "goals=verl_agent repeats published runs: every worker shuffles the goals for itself, so that test goals are "
    "trained on; use goals=fixed for results of your own"
)


class WebShop:
    """WebShop (Yao et al., arXiv:2207.01206) over a made or official catalogue; a `Benchmark`.

    The episode's length is the caller's; 15 steps in the published protocol. Success is a score of exactly 1. The
    catalogue is opened when first needed. ValueError names a folder that is none.
    """

    name = "webshop"
    kinds = ("beauty", "fashion", "electronics", "garden", "grocery")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.success_reward = options.top_reward
        if options.goals == "verl_agent":
            warnings.warn(LEAKS, stacklevel=3)

    @cached_property
    def store(self) -> Store:
        """The catalogue."""
        return default.open_store(self.options.data)

    @cached_property
    def goals(self) -> goals.GoalList:
        """All goals of the chosen kind. ValueError when the catalogue has none."""
        prices = "fixed" if self.options.goals == "fixed" else "sequential"
        found = goals.GoalList(self.store, self.options.kind, prices, self.options.seed)
        if len(found) < len(goals.SPLITS):
            raise ValueError(
                f"webshop catalogue {self.store.name} has {len(found)} {self.options.kind} goals, too few to split; "
                "build it with items_human_ins.json, or use benchmark.options.goal_kind=synthetic"
            )
        return found

    @cached_property
    def _shop(self) -> shop.Shop:
        search = shop.engine(self.options.search, self.store, self.options.search_index)
        return shop.Shop(self.store, search, self.options.legacy_queries, self.options.seed)

    @property
    def label(self) -> str:
        """Names catalogue, goals and, unless exact, search; results of different labels are never comparable."""
        options = self.options
        search = "" if options.search == "lucene" else f"-{options.search}"
        return f"webshop-{self.store.name}-{options.kind}-{options.goals}{search}"

    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(goals.WORKERS) if self.options.goals == "verl_agent" else goals.SPLITS

    def size(self, split: str) -> int:
        """How many tasks a split has."""
        return len(self._places(split))

    def task_set(self, split: str, count: int | None = None, offset: int = 0) -> TaskSet:
        """`count` tasks after `offset` of a split ("train", "eval", "test"), in canonical order.

        ValueError when the split is unknown or too short.
        """
        places = self._places(split)
        count = len(places) - offset if count is None else count
        if offset < 0 or count < 1 or offset + count > len(places):
            raise ValueError(
                f"{self.label}/{split} has {len(places)} tasks: {count} after offset {offset} are not among them"
            )
        chosen = [self.goals.goal(place) for place in places[offset : offset + count]]
        tasks = tuple(self._task(split, offset + number, goal) for number, goal in enumerate(chosen))
        return TaskSet(self.label, split, tasks, tuple(goals.digest(goal) for goal in chosen))

    def _task(self, split: str, place: int, goal: Goal) -> Task:
        name = goals.goal_id(goal)
        if self.options.goals == "verl_agent":  # a goal may come twice
            reset, worker = divmod(place, goals.WORKERS[split])
            name = f"{split}-reset{reset}-worker{worker}/{name}"
        return Task(name, goal["category"], goal)

    @cached_property
    def _placed(self) -> dict[str, np.ndarray]:
        if self.options.goals == "verl_agent":
            return {split: goals.worker_places(self.goals, split, self.options.seed) for split in goals.WORKERS}
        return goals.held_out_places(self.goals)

    def _places(self, split: str) -> np.ndarray:
        if split not in self.splits():
            raise ValueError(f"unknown WebShop split {split!r} (known: {', '.join(self.splits())})")
        return self._placed[split]

    def record(self) -> dict[str, Any]:
        """What a run's record should say about the data, strict JSON."""
        options = self.options
        record = {
            "label": self.label,
            "catalogue": self.store.name,
            "stamp": self.store.stamp,
            "products": len(self.store),
            "tagger": self.store.manifest["tagger"],
            "goals": options.goals,
            "goal_kind": options.kind,
            "splits": {split: self.size(split) for split in self.splits()},
            "seed": options.seed,
            "search": options.search,
            "reward": options.reward,
            "commands": options.commands,
        }
        return record | ({"warning": LEAKS} if options.goals == "verl_agent" else {})

    def audit(self, split: str) -> dict[str, Any]:
        """The oracle ceiling of a split: mean score and share of goals that their own product can meet fully, and the
        ids of those that it cannot."""
        tasks = self.task_set(split)
        scores = {task.id: self.ceiling(task).score for task in tasks.tasks}
        unreachable = [name for name, score in scores.items() if score < 1.0]
        return {
            "label": self.label,
            "split": split,
            "hash": tasks.hash,
            "goals": len(tasks),
            "ceiling_score": 100 * sum(scores.values()) / len(tasks),
            "ceiling_success": 100 * (1 - len(unreachable) / len(tasks)),
            "unreachable": unreachable,
            "tagger": self.store.manifest["tagger"],
        }

    def ceiling(self, task: Task) -> oracle.Ceiling:
        """What the task's own product can score."""
        position = self._shop.position(task.payload["asin"])
        if position is None:
            raise ValueError(f"task {task.id!r} asks for a product that {self.store.name} does not have")
        product = self._shop.product(position)
        price = self.goals.prices.price(position, product)
        return oracle.ceiling(product, task.payload, price, self.options.show_attributes)

    def episode(self, task: Task) -> Episode:
        """A new episode of a task. ValueError for a task of another benchmark or catalogue."""
        if "instruction_text" not in task.payload or self._shop.position(task.payload["asin"]) is None:
            raise ValueError(f"task {task.id!r} is not one of {self.store.name}'s; make the task set again")
        return Episode(task.id, task.payload, self._shop, self.goals.prices.price, self.options)

    def pool(self, slots: int, workers: int = 0) -> EnvironmentPool:
        """Slots stepped in this process, whatever `workers` says: a step takes a fraction of a millisecond, less than
        its way to another process and back."""
        return Pool(self.episode, slots)

    def messages(self, view: StepView) -> list[dict[str, str]]:
        """The prompt of one step for a chat model."""
        actions = protocol.offered(view.observation, self.options.offer_click_search)
        return protocol.messages(view, self.options.history, actions)

    def parse(self, reply: str) -> ParsedAction:
        """Read a chat model's reply."""
        return protocol.parse(reply)

    def reply(self, view: StepView, action: str) -> str:
        """An expert's decision in words, for worked examples; `action` is an official one."""
        return thoughts.reply(view, action)

    def compact(self, view: StepView) -> str:
        """The prompt of one step in the closed vocabulary of the tiny policy; needs `commands=short`."""
        return compact.compact(view)

    def lexicon(self) -> tuple[str, ...]:
        """Every word of compact prompts and short commands, in a fixed order."""
        if self.options.commands != "short":
            raise ValueError("the tiny policy needs benchmark.options.commands=short in webshop")
        return compact.lexicon()

    def words(self, text: str) -> list[str]:
        """Split compact prompts and short commands into words of the lexicon; " ".join undoes it."""
        return compact.words(text)

    def demonstrations(self, tasks: Sequence[Task], runs: int, seed: int) -> Iterator[tuple[StepView, str]]:
        """A reading shopper's decisions, with `commands=short` for behavior cloning; see `oracle.demonstrations`."""
        if self.options.commands == "short":
            return oracle.demonstrations(self.episode, tasks, runs, seed)
        return oracle.translated_demonstrations(self.episode, self._menu_episode, tasks, runs)

    def _menu_episode(self, task: Task) -> Episode:
        """An episode with short commands, whatever the benchmark's own are."""
        options = replace(self.options, commands="short")
        return Episode(task.id, task.payload, self._shop, self.goals.prices.price, options)
