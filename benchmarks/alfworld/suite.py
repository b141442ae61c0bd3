"""ALFWorld as a benchmark: what the trainer sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from benchmarks.alfworld import caches, compact, official, oracle, protocol, rooms, synth, thoughts, upstream
from benchmarks.alfworld.game_data import GameData
from benchmarks.alfworld.options import SPLITS, Options
from benchmarks.alfworld.pool import LocalPool
from benchmarks.alfworld.source import Player, official_payload, synth_payload, task_of
from benchmarks.alfworld.workers import WorkerPool
from benchmarks.base import EnvironmentPool, ParsedAction, StepView, Task, TaskSet


class AlfWorld:
    """ALFWorld (Shridhar et al., arXiv:2010.03768) over generated or official games; a `Benchmark`.

    The episode's length is the caller's; 50 steps in the published protocol. Success is the engine's `won`.
    """

    name = "alfworld"
    kinds = tuple(rooms.KINDS.values())

    def __init__(self, options: Options) -> None:
        self.options = options
        self.label = options.label
        self.success_reward = options.success_reward

    @cached_property
    def _player(self) -> Player:
        return Player(self.options)

    def task_set(self, split: str, count: int | None = None, offset: int = 0) -> TaskSet:
        """`count` tasks after `offset` of a split ("train", "valid_seen", "valid_unseen"), in canonical order.

        Only what is asked for is generated or read. ValueError when the split is unknown or too short.
        """
        if split not in SPLITS:
            raise ValueError(f"unknown ALFWorld split {split!r} (known: {', '.join(SPLITS)})")
        size = self.size(split)
        count = size - offset if count is None else count
        if offset < 0 or count < 1 or offset + count > size:
            raise ValueError(f"{self.label}/{split} has {size} tasks: {count} after offset {offset} are not among them")
        tasks, digests = [], []
        for index in range(offset, offset + count):
            task, data = self._entry(split, index)
            tasks.append(task)
            digests.append(data.digest)
        return TaskSet(self.label, split, tuple(tasks), tuple(digests))

    def size(self, split: str) -> int:
        """How many tasks a split has."""
        return len(official.game_paths(split)) if self._official else synth.SIZES[split]

    @property
    def _official(self) -> bool:
        return self.options.data == "official"

    def _entry(self, split: str, index: int) -> tuple[Task, GameData]:
        if self._official:
            path = official.game_paths(split)[index]
            data = official.read_game(path)
            return task_of(data, official_payload(path)), data
        data = synth.make_game(self.label, split, index)
        return task_of(data, synth_payload(self.label, split, index)), data

    def record(self) -> dict[str, Any]:
        """What a run's record should say about the engine, strict JSON.

        `put_command` is the verb set of the games: replies and demonstrations made for another one fail silently.
        """
        _, data = self._entry(SPLITS[0], 0)
        return {
            "label": self.label,
            "versions": upstream.versions(),
            "caches": self.options.caches and caches.usable(),
            "memo": self.options.memo,
            "put_command": official.put_command(data.grammar),
        }

    def pool(self, slots: int, workers: int = 0) -> EnvironmentPool:
        """Slots stepped in this process (`workers=0`) or spread over worker processes, with equal results."""
        return WorkerPool(self.options, slots, workers) if workers else LocalPool(self.options, slots)

    def messages(self, view: StepView) -> list[dict[str, str]]:
        """The prompt of one step for a chat model."""
        return protocol.messages(view, self.options.history)

    def parse(self, reply: str) -> ParsedAction:
        """Read a chat model's reply."""
        return protocol.parse(reply)

    def reply(self, view: StepView, action: str) -> str:
        """An expert's decision in words, for worked examples."""
        return thoughts.reply(view, action)

    def compact(self, view: StepView) -> str:
        """The prompt of one step in the closed vocabulary of the tiny policy; without the admissible list."""
        return compact.compact(view)

    def lexicon(self) -> tuple[str, ...]:
        """Every word that `compact` and admissible commands can hold, in a fixed order."""
        return compact.lexicon()

    def words(self, text: str) -> list[str]:
        """Split `compact` prompts and commands into words of the lexicon; " ".join undoes it."""
        return compact.words(text)

    def demonstrations(
        self, tasks: Sequence[Task], runs: int, seed: int, expert: str = "search"
    ) -> Iterator[tuple[StepView, str]]:
        """Expert decisions for behavior cloning, `runs` episodes a task; see `oracle.demonstrations`."""
        return oracle.demonstrations(self._player, tasks, runs, seed, expert, self.options.wasted)
