"""Runs groups of episodes against a policy and records every executed step.

The collector knows neither the trainer nor the estimators: it asks an engine for replies (token ids in, token ids
out) and gives back `Episode`s, from which `rollout_batch` makes the columns that estimators read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from algorithms.generation import Engine, Reply, request_seed
from algorithms.policy import Policy
from algorithms.rollouts import RolloutBatch
from benchmarks.base import Benchmark, EnvironmentPool, Observation, StepResult, StepView, Task
from benchmarks.stepping import BatchStepper, stepper


@dataclass
class Step:
    """One executed step: the tokens that were seen and sampled, and what the environment made of them."""

    prompt_ids: list[int]
    completion_ids: list[int]
    sampling_logps: list[float] | None
    state: str
    action: str
    format_valid: bool
    shown: str  # what later prompts show of it: the action, or a longer text
    truncated: bool = False  # the reply was cut at its limit
    next_state: str = ""
    admissible: bool = False
    reward: float = 0.0


@dataclass
class Episode:
    """One trajectory of `task`; `group` and `index` say which group it belongs to and which member it is."""

    task: Task
    group: str
    index: int
    steps: list[Step] = field(default_factory=list)
    success: bool = False
    measures: Mapping[str, str | float] = field(default_factory=dict)


@dataclass
class Timings:
    """Wall seconds of a collection by stage."""

    generation: float = 0.0
    environment: float = 0.0
    prompts: float = 0.0


class Collector:
    """Plays `len(tasks)` episodes at a time in the slots of one pool.

    state_key   the observation key that estimators group states by; an unknown name is an error naming the known ones
    history     how many past (observation, action) pairs a prompt may show
    """

    def __init__(
        self, benchmark: Benchmark, policy: Policy, pool: EnvironmentPool, *, horizon: int, state_key: str, history: int
    ):
        self.benchmark, self.policy, self.pool = benchmark, policy, pool
        self.horizon, self.state_key, self.history = horizon, state_key, history

    def collect(
        self,
        episodes: list[Episode],
        engine: Engine,
        any_active: Callable[[int], bool] = bool,
        seed: int = 0,
    ) -> Timings:
        """Play empty `episodes` to their ends, in place.

        With a lock-step engine all episodes take their turns together; `any_active(count)` then says whether any
        process still has active ones: where generation is collective (FSDP, ZeRO-3, tensor parallel) it must ask all
        processes, because every process has to join every call. With any other engine an episode asks for its next
        reply as soon as its environment has answered. Requests are seeded from `seed`, their episode and their step,
        so that what is sampled does not depend on the order of arrival.
        """
        play = _Play(self, episodes, engine, seed)
        try:
            play.start()
            while any_active(play.active) if engine.lockstep else play.active:
                play.turn()
        finally:
            play.stepper.close()
        return play.timings

    def key(self, observation: Observation) -> str:
        """What estimators group the observed state by."""
        try:
            return observation.keys[self.state_key]
        except KeyError:
            known = ", ".join(observation.keys)
            raise ValueError(f"protocol.state_key {self.state_key!r} is not offered here (known: {known})") from None


class _Play:
    """One collection under way."""

    def __init__(self, collector: Collector, episodes: list[Episode], engine: Engine, seed: int):
        self.collector, self.episodes, self.engine, self.seed = collector, episodes, engine, seed
        self.stepper = BatchStepper(collector.pool) if engine.lockstep else stepper(collector.pool)
        self.timings = Timings()
        self.active = 0
        self._observations: list[Observation] = []
        self._histories: list[list[tuple[str, str]]] = [[] for _ in episodes]
        self._prompts: list[list[int]] = [[] for _ in episodes]

    def start(self) -> None:
        """Reset the environments and ask for every first reply."""
        started = time.perf_counter()
        self._observations = self.collector.pool.reset([episode.task for episode in self.episodes])
        self.timings.environment += time.perf_counter() - started
        self.active = len(self.episodes)
        for i in range(self.active):
            self._ask(i)

    def turn(self) -> None:
        """Let the engine work, hand out its replies, and take in what environments have answered.

        The environment's time is what the engine waits for it.
        """
        started = time.perf_counter()
        replies = self.engine.advance() if self.engine.lockstep or self.engine.waiting else []
        generated = time.perf_counter()
        for reply in replies:
            self.stepper.send(reply.key, self._record(reply))
        results = self.stepper.ready(wait=not self.engine.waiting)
        self.timings.generation += generated - started
        self.timings.environment += time.perf_counter() - generated
        for i, result in results:
            if self._goes_on(i, result):
                self._ask(i)
            else:
                self.active -= 1

    def _ask(self, i: int) -> None:
        started = time.perf_counter()
        collector, episode, history = self.collector, self.episodes[i], self._histories[i]
        shown = tuple(history[-collector.history :]) if collector.history else ()
        view = StepView(self._observations[i], len(episode.steps), collector.horizon, shown)
        self._prompts[i] = collector.policy.render(view)
        self.timings.prompts += time.perf_counter() - started
        seed = request_seed(self.seed, episode.group, episode.index, len(episode.steps))
        self.engine.submit(i, self._prompts[i], seed)

    def _record(self, reply: Reply) -> str:
        """Add the step to its episode; what the environment gets."""
        parsed = self.collector.policy.read(reply.ids)
        step = Step(
            self._prompts[reply.key], reply.ids, reply.logps, self.collector.key(self._observations[reply.key]),
            parsed.action, parsed.format_valid, parsed.shown, self.collector.policy.truncated(reply.ids),
        )  # fmt: skip
        self.episodes[reply.key].steps.append(step)
        return parsed.sent

    def _goes_on(self, i: int, result: StepResult) -> bool:
        """Record the environment's answer; whether the episode has another step."""
        episode, step = self.episodes[i], self.episodes[i].steps[-1]
        self._histories[i].append((self._observations[i].text, step.shown))
        self._observations[i] = result.observation
        step.next_state, step.reward = self.collector.key(result.observation), result.reward
        step.admissible = result.admissible
        episode.success = episode.success or result.success
        episode.measures = result.measures
        return not result.done and len(episode.steps) < self.collector.horizon


def rollout_columns(episodes: Sequence[Episode], invalid_counts: str = "any") -> dict[str, list[Any]]:
    """The columns of a RolloutBatch, one row per executed step, episode by episode.

    `invalid_counts` says which steps are not `valid`: "any" (unparsable or not admissible) or "format" (unparsable
    only, as in the code behind the published numbers, where an inadmissible command costs nothing).
    """
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "group", "trajectory", "step", "state", "action", "next_state", "valid", "reward", "success", "task",
            "format_valid", "admissible", "truncated", "prompt_tokens", "completion_tokens",
        )
    }  # fmt: skip
    for episode in episodes:
        for t, step in enumerate(episode.steps):
            valid = step.format_valid and (step.admissible or invalid_counts == "format")
            row = (
                episode.group, episode.index, t, step.state, step.action, step.next_state, valid, step.reward,
                episode.success, episode.task.id, step.format_valid, step.admissible, step.truncated,
                len(step.prompt_ids), len(step.completion_ids),
            )  # fmt: skip
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
    return columns


def rollout_metrics(columns: Mapping[str, list[Any]], diagnostics: Mapping[str, float]) -> dict[str, float]:
    """An update's numbers from its columns (episodes one after the other) and the estimator's diagnostics."""
    rows = len(columns["group"])
    last = [i for i in range(rows) if i + 1 == rows or columns["step"][i + 1] == 0]
    refused = sum(f and not a for f, a in zip(columns["format_valid"], columns["admissible"], strict=True))
    return {
        "episodes": len(last),
        "rows": rows,
        "success": sum(columns["success"][i] for i in last) / len(last),
        "return": sum(columns["reward"]) / len(last),
        "turns": rows / len(last),
        "invalid_format": 1 - sum(columns["format_valid"]) / rows,
        "inadmissible": refused / rows,
        "truncated": sum(columns["truncated"]) / rows,
        "prompt_tokens": sum(columns["prompt_tokens"]) / rows,
        "completion_tokens": sum(columns["completion_tokens"]) / rows,
        **{f"advantage/{name}": float(value) for name, value in diagnostics.items()},
    }


def rollout_batch(columns: dict[str, list[Any]], benchmark: Benchmark, **optional: list[str]) -> RolloutBatch:
    """Columns of `rollout_columns` as a RolloutBatch of this benchmark; `optional` adds e.g. prompt and completion."""
    label = [benchmark.label] * len(columns["group"])
    return RolloutBatch.from_columns(**columns, **optional, benchmark=label, success_reward=benchmark.success_reward)
