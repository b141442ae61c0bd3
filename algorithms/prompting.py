"""Prompting baselines: methods that train nothing and differ in what they show the model.

prompting   zero-shot: the benchmark's own prompt, as trained methods see it
react       ReAct (Yao et al. 2022, arXiv:2210.03629): thoughts, actions and observations interleaved. The whole episode
            stays in the prompt, with the thoughts that led to each action (trained methods see the last few actions
            only), and a worked example stands before the task: an expert's demonstration on a training task, its
            thoughts written by rule.

`react` is a benchmark around the benchmark: tasks, environments, what counts as a valid reply and how success is
measured are the inner one's, so results stand in one table with those of trained methods. Needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from benchmarks.base import Benchmark, EnvironmentPool, Explains, ParsedAction, StepView, Task

TRIED = 96  # training tasks that are looked at for worked examples
CHOICE = 4  # the shortest of so many demonstrations for each example that is wanted

_BEFORE = "Before your own task, here is one that was solved. Mind how each action follows from a thought."
_AFTER = "The solved task ends here. Your own task begins:"
_END = re.compile(r"</(?:action|search|answer)>", re.IGNORECASE)


class PromptingError(ValueError):
    """A baseline that cannot be played here; the message is one line that names the way out."""


@dataclass(frozen=True)
class PromptingOptions:
    """`prompting` has none: its prompt is the benchmark's."""


@dataclass(frozen=True)
class ReActOptions:
    """examples: worked examples before the task (0: zero-shot ReAct). history: past steps that a prompt shows, null
    for the whole episode."""

    examples: int = 1
    history: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("examples", self.examples), ("history", self.history)):
            if value is None and name == "history":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} must be a whole number >= 0, got {value!r}")


OPTIONS: Mapping[str, Any] = {"prompting": PromptingOptions, "react": ReActOptions}


@dataclass(frozen=True)
class Example:
    """A solved training task, as text."""

    task: str
    text: str


class ReAct:
    """A benchmark whose prompts are ReAct's; everything else is the inner benchmark's.

    `shorter` is the same with one example less, for prompts that would be too long even without any past; None when
    there is nothing left to take away. The task and the newest observation always stay.
    """

    cuts_left = False  # a prompt over the limit loses its past first, whatever the benchmark's protocol does

    def __init__(self, inner: Benchmark, examples: Sequence[Example] = ()):
        self._inner, self.examples = inner, tuple(examples)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @cached_property
    def shorter(self) -> ReAct | None:
        """One example less."""
        return ReAct(self._inner, self.examples[:-1]) if self.examples else None

    def messages(self, view: StepView) -> list[dict[str, str]]:
        """The benchmark's messages, worked examples in front of the first."""
        first, *rest = self._with_past(view)
        if not self.examples:
            return [first, *rest]
        content = "\n\n".join([_BEFORE, *(example.text for example in self.examples), _AFTER, first["content"]])
        return [{**first, "content": content}, *rest]

    def _with_past(self, view: StepView) -> list[dict[str, str]]:
        """With as much of the past as the benchmark takes. One with a length rule of its own (WebShop) leaves out all
        of it where it is too long; here the oldest steps go first."""
        without = self._inner.messages(replace(view, history=()))
        for dropped in range(len(view.history)):
            messages = self._inner.messages(replace(view, history=view.history[dropped:]))
            if messages != without:
                return messages
        return without

    def parse(self, reply: str) -> ParsedAction:
        """The inner benchmark's reading; later prompts show the reply up to its action, thought and all."""
        parsed = self._inner.parse(reply)
        return parsed if parsed.message is not None else replace(parsed, record=_until_action(reply))

    def record(self) -> dict[str, Any]:
        """The inner benchmark's record, and which tasks were shown as examples."""
        return {**self._inner.record(), "worked_examples": [example.task for example in self.examples]}


def _until_action(reply: str) -> str:
    """What follows the action is no part of the step: ReAct stops there and lets the environment speak."""
    found = _END.search(reply)
    return (reply[: found.end()] if found else reply).strip()


# --- from a run's configuration ---------------------------------------------------------------------------------------


def history_shown(config: Mapping[str, Any]) -> int:
    """How many past steps a run's prompts may show."""
    if config["algorithm"]["name"] != "react":
        return int(config["benchmark"]["options"].get("history", 2))
    chosen = config["algorithm"]["options"].get("history")
    return int(config["protocol"]["horizon"] if chosen is None else chosen)


def benchmark_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a run loads its benchmark with: the configured options, and as much of the past as the method shows."""
    options = dict(config["benchmark"]["options"])
    return {**options, "history": history_shown(config)} if "history" in options else options


def dressed(benchmark: Benchmark, config: Mapping[str, Any]) -> Benchmark:
    """The benchmark with the prompts of a run's method. PromptingError where no worked example can be made."""
    if config["algorithm"]["name"] != "react":
        return benchmark
    count = ReActOptions(**config["algorithm"]["options"]).examples
    examples = worked_examples(benchmark, count, config["protocol"]) if count else ()
    return cast(Benchmark, ReAct(benchmark, examples))


def check(benchmark: Benchmark, config: Mapping[str, Any]) -> None:
    """PromptingError for what `dressed` would fail on, as far as that can be told without playing."""
    if config["algorithm"]["name"] == "react" and config["algorithm"]["options"].get("examples", 1):
        _explaining(benchmark)
        next(_candidates(benchmark, config["protocol"]), None)


# --- worked examples --------------------------------------------------------------------------------------------------


def worked_examples(benchmark: Benchmark, count: int, protocol: Mapping[str, Any]) -> tuple[Example, ...]:
    """The `count` shortest of the first solved demonstrations on tasks of the training split that no evaluation list
    holds, by id or by content. A pure function of its arguments. PromptingError when there are too few."""
    _explaining(benchmark)
    pool = benchmark.pool(1)
    try:
        found = (_example(benchmark, pool, task) for task in _candidates(benchmark, protocol))
        solved = [example for example, _ in zip(filter(None, found), range(CHOICE * count), strict=False)]
    finally:
        pool.close()
    if len(solved) < count:
        raise PromptingError(
            f"algorithm.options.examples={count}: only {len(solved)} of the first {TRIED} training tasks of "
            f"{benchmark.label} have a demonstration that solves them; use {len(solved)}"
        )
    return tuple(sorted(solved, key=lambda example: len(example.text))[:count])


def _explaining(benchmark: Benchmark) -> Explains:
    if not isinstance(benchmark, Explains):
        raise PromptingError(
            f"benchmark {benchmark.name} has no worked examples; use algorithm.options.examples=0 with algorithm=react"
        )
    return benchmark


def _candidates(benchmark: Benchmark, protocol: Mapping[str, Any]) -> Iterator[Task]:
    """Training tasks in order, without those of any evaluation list."""
    split, held_out = protocol["train"]["split"], _held_out(benchmark, protocol)
    for place in range(TRIED):
        try:
            one = benchmark.task_set(split, 1, place)
        except (ValueError, OSError) as error:
            if place:
                return  # a short split
            reason = " ".join(str(error).split())
            raise PromptingError(
                f"worked examples come from split {split!r}: {reason} (algorithm.options.examples=0 goes without)"
            ) from None
        if one.tasks[0].id not in held_out and one.digests[0] not in held_out:
            yield one.tasks[0]


def _held_out(benchmark: Benchmark, protocol: Mapping[str, Any]) -> Collection[str]:
    """Ids and content hashes of all evaluation tasks."""
    names: set[str] = set()
    for part in protocol["evaluation"]["lists"].values():
        tasks = benchmark.task_set(part["split"], part["count"], part["offset"])
        names.update(task.id for task in tasks.tasks)
        names.update(tasks.digests)
    return names


def _example(benchmark: Benchmark, pool: EnvironmentPool, task: Task) -> Example | None:
    """An expert's episode from its first step to its success; None where there is none."""
    steps: list[tuple[StepView, str]] = []
    for view, action in benchmark.demonstrations([task], 1, 0):
        if not steps and view.step:  # begins in the middle
            return None
        steps.append((view, action))
    return Example(task.id, _text(benchmark, steps)) if steps and _solves(pool, task, steps) else None


def _solves(pool: EnvironmentPool, task: Task, steps: Sequence[tuple[StepView, str]]) -> bool:
    """Whether these actions, played, show what was seen and end in success; an expert may stray unseen."""
    (observation,) = pool.reset([task])
    for view, action in steps:
        if observation.text != view.observation.text:
            return False
        (result,) = pool.step([(0, action)])
        observation = result.observation
        if result.done:
            return result.success
    return False


def _text(benchmark: Benchmark, steps: Sequence[tuple[StepView, str]]) -> str:
    goal, explaining = steps[0][0].observation.goal, _explaining(benchmark)
    lines = [f"Task: {goal}"]
    for view, action in steps:
        if view.observation.text != goal:
            lines.append(f"Observation: {view.observation.text.strip()}")
        lines.append(explaining.reply(view, action))
    return "\n".join(lines)
