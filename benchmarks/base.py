"""What every benchmark gives the trainer: tasks, environments, prompts and action parsing.

A benchmark never imports the trainer, the estimators or torch. Everything the agent may see travels in
`Observation`; everything an estimator may group by travels in `Observation.keys`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True)
class Task:
    """One problem. `id` is unique in its benchmark and stable over machines; `kind` is the subtask reported in
    tables ("" where a benchmark has none); `payload` is what the environment needs to start it (strict JSON)."""

    id: str
    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)


@dataclass(frozen=True)
class TaskSet:
    """A named, ordered list of tasks: a manifest. `digests` holds one content hash per task, so that two manifests
    with the same ids and other content have another `hash`."""

    name: str
    split: str
    tasks: tuple[Task, ...]
    digests: tuple[str, ...]

    def __post_init__(self) -> None:
        ids = [task.id for task in self.tasks]
        if not ids:
            raise ValueError(f"task set {self.name}/{self.split} is empty")
        if len(set(ids)) != len(ids):
            twice = min(i for i, times in Counter(ids).items() if times > 1)
            raise ValueError(f"task set {self.name}/{self.split} holds task {twice!r} twice")
        if len(self.digests) != len(ids):
            raise ValueError(f"task set {self.name}/{self.split}: {len(ids)} tasks but {len(self.digests)} digests")

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def hash(self) -> str:
        """16 hex digits over ids and content, in order."""
        record = json.dumps([[t.id, d] for t, d in zip(self.tasks, self.digests, strict=True)], separators=(",", ":"))
        return hashlib.sha256(record.encode()).hexdigest()[:16]

    def manifest(self) -> dict[str, Any]:
        """Strict-JSON record of the list: name, split, count, hash, ids."""
        ids = [task.id for task in self.tasks]
        return {"name": self.name, "split": self.split, "count": len(self), "hash": self.hash, "ids": ids}


@dataclass(frozen=True)
class Observation:
    """What an environment shows after `reset` or `step`.

    text        the observation as the agent reads it
    goal        the task sentence (the same all episode long)
    admissible  commands the environment accepts now, in the environment's order; () where actions are free text
    keys        state keys by name ("observation", ...); what estimators may group states by
    facts       bookkeeping derived from the visible text alone (what is held, where the agent stands, ...)
    """

    text: str
    goal: str
    admissible: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StepResult:
    """`reward` is the environment's own reward of this step (`success_reward` on the step that solves the task);
    `success` is the environment's own `won`; `done` means that the episode ended by itself (horizons belong to the
    caller); `admissible` says whether the action was one the environment accepts in that state; `measures` are the
    benchmark's own numbers and names of the episode so far: the last ones go into the record of the episode, and their
    means over episodes into an update's metrics."""

    observation: Observation
    reward: float
    done: bool
    success: bool
    admissible: bool
    measures: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepView:
    """Everything a prompt may show at one decision: `history` holds (observation text, action text), oldest first."""

    observation: Observation
    step: int
    horizon: int
    history: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ParsedAction:
    """`action` is what was done, as estimators compare it; `format_valid` is False when the reply broke the reply
    format. `message`, where given, goes to the environment and into later prompts in its place; `record`, where given,
    into later prompts in place of both."""

    action: str
    format_valid: bool
    message: str | None = None
    record: str | None = None

    @property
    def sent(self) -> str:
        """What the environment gets."""
        return self.action if self.message is None else self.message

    @property
    def shown(self) -> str:
        """What later prompts show of the step."""
        return self.sent if self.record is None else self.record


class EnvironmentPool(Protocol):
    """A fixed number of environment slots, stepped in batches; in this process or in worker processes."""

    def reset(self, tasks: Sequence[Task]) -> list[Observation]:
        """Start `tasks[i]` in slot i (any number up to the pool's size); slots are reused."""
        ...

    def step(self, actions: Sequence[tuple[int, str]]) -> list[StepResult]:
        """Send (slot, action) pairs; results come in the same order. A slot may appear once."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Benchmark(Protocol):
    """A benchmark as the trainer sees it. `benchmarks.load(name, options)` makes one."""

    name: str
    label: str  # names the data, e.g. "alfworld-synth-v1"; results of different labels are never comparable
    success_reward: float
    kinds: tuple[str, ...]  # subtasks in table order

    def record(self) -> dict[str, Any]:
        """What a result says about its data and engine (label, versions, ...), strict JSON."""
        ...

    def task_set(self, split: str, count: int | None = None, offset: int = 0) -> TaskSet:
        """The `count` first tasks after `offset` of a split's canonical order (all of them by default)."""
        ...

    def pool(self, slots: int, workers: int = 0) -> EnvironmentPool:
        """`workers=0` steps in this process."""
        ...

    def messages(self, view: StepView) -> list[dict[str, str]]:
        """The prompt of one step for a chat model."""
        ...

    def parse(self, reply: str) -> ParsedAction:
        """Read a chat model's reply."""
        ...

    def compact(self, view: StepView) -> str:
        """The prompt of one step in the closed vocabulary of the built-in tiny policy."""
        ...

    def lexicon(self) -> tuple[str, ...]:
        """Every word that `compact` and admissible commands can hold, in a fixed order."""
        ...

    def words(self, text: str) -> list[str]:
        """Split `compact` prompts and commands into words of the lexicon."""
        ...

    def demonstrations(self, tasks: Sequence[Task], runs: int, seed: int) -> Iterator[tuple[StepView, str]]:
        """Expert decisions for behavior cloning: (what was seen, expert action)."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A benchmark that puts an expert's decisions into words, as worked examples in prompts need it."""

    def reply(self, view: StepView, action: str) -> str:
        """What the expert could have written: a thought, then the action, in the reply format of `parse`."""
        ...
