"""Runs groups of episodes against a policy, in lock step, and records every executed step.

The collector knows neither the trainer nor the estimators: it asks `generate` for replies (token ids in, token ids
out) and gives back `Episode`s, from which `rollout_batch` makes the columns that estimators read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from algorithms.policy import Policy
from algorithms.rollouts import RolloutBatch
from benchmarks.base import Benchmark, EnvironmentPool, Observation, StepView, Task

# prompts [n] of token ids -> (replies [n] of token ids, log-probabilities of the sampled tokens [n] or None)
Generate = Callable[[list[list[int]]], tuple[list[list[int]], list[list[float]] | None]]


@dataclass
class Step:
    """One executed step: the tokens that were seen and sampled, and what the environment made of them."""

    prompt_ids: list[int]
    completion_ids: list[int]
    sampling_logps: list[float] | None
    state: str
    action: str
    format_valid: bool
    sent: str  # what the environment got and later prompts show: the action, or a longer message
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
        generate: Generate,
        any_active: Callable[[int], bool] = bool,
    ) -> Timings:
        """Play empty `episodes` to their ends, in place.

        `any_active(count)` says whether any process still has active episodes. Where generation is collective (vLLM
        server, FSDP, ZeRO-3) it must ask all processes, because every process has to join every call.
        """
        timings = Timings()
        started = time.perf_counter()
        observations = self.pool.reset([episode.task for episode in episodes])
        timings.environment += time.perf_counter() - started
        histories: list[list[tuple[str, str]]] = [[] for _ in episodes]
        active = list(range(len(episodes)))
        while any_active(len(active)):
            joined = active or [0]  # a process without active episodes still joins; its reply is dropped
            started = time.perf_counter()
            prompts = [self._prompt(observations[i], episodes[i], histories[i]) for i in joined]
            rendered = time.perf_counter()
            replies, logps = generate(prompts)
            generated = time.perf_counter()
            if active:
                self._record(episodes, active, observations, prompts, replies, logps)
                active = self._step(episodes, active, observations, histories)
            timings.prompts += rendered - started
            timings.generation += generated - rendered
            timings.environment += time.perf_counter() - generated
        return timings

    def _key(self, observation: Observation) -> str:
        try:
            return observation.keys[self.state_key]
        except KeyError:
            known = ", ".join(observation.keys)
            raise ValueError(f"protocol.state_key {self.state_key!r} is not offered here (known: {known})") from None

    def _prompt(self, observation: Observation, episode: Episode, history: list[tuple[str, str]]) -> list[int]:
        shown = tuple(history[-self.history :]) if self.history else ()
        return self.policy.render(StepView(observation, len(episode.steps), self.horizon, shown))

    def _record(
        self,
        episodes: list[Episode],
        active: list[int],
        observations: list[Observation],
        prompts: list[list[int]],
        replies: list[list[int]],
        logps: list[list[float]] | None,
    ) -> None:
        for k, i in enumerate(active):
            parsed = self.policy.read(replies[k])
            sampled = None if logps is None else list(logps[k])
            step = Step(
                prompts[k], list(replies[k]), sampled, self._key(observations[i]), parsed.action, parsed.format_valid,
                parsed.sent,
            )  # fmt: skip
            episodes[i].steps.append(step)

    def _step(
        self,
        episodes: list[Episode],
        active: list[int],
        observations: list[Observation],
        histories: list[list[tuple[str, str]]],
    ) -> list[int]:
        """Send the newest action of every active episode; returns those that go on."""
        results = self.pool.step([(i, episodes[i].steps[-1].sent) for i in active])
        still = []
        for i, result in zip(active, results, strict=True):
            episode, step = episodes[i], episodes[i].steps[-1]
            histories[i].append((observations[i].text, step.sent))
            observations[i] = result.observation
            step.next_state, step.reward = self._key(result.observation), result.reward
            step.admissible = result.admissible
            episode.success = episode.success or result.success
            episode.measures = result.measures
            if not result.done and len(episode.steps) < self.horizon:
                still.append(i)
        return still


def rollout_columns(episodes: Sequence[Episode], invalid_counts: str = "any") -> dict[str, list[Any]]:
    """The columns of a RolloutBatch, one row per executed step, episode by episode.

    `invalid_counts` says which steps are not `valid`: "any" (unparsable or not admissible) or "format" (unparsable
    only, as in the code behind the published numbers, where an inadmissible command costs nothing).
    """
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "group", "trajectory", "step", "state", "action", "next_state", "valid", "reward", "success", "task",
            "format_valid", "admissible", "prompt_tokens", "completion_tokens",
        )
    }  # fmt: skip
    for episode in episodes:
        for t, step in enumerate(episode.steps):
            valid = step.format_valid and (step.admissible or invalid_counts == "format")
            row = (
                episode.group, episode.index, t, step.state, step.action, step.next_state, valid, step.reward,
                episode.success, episode.task.id, step.format_valid, step.admissible, len(step.prompt_ids),
                len(step.completion_ids),
            )  # fmt: skip
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
    return columns


def rollout_batch(columns: dict[str, list[Any]], benchmark: Benchmark, **optional: list[str]) -> RolloutBatch:
    """Columns of `rollout_columns` as a RolloutBatch of this benchmark; `optional` adds e.g. prompt and completion."""
    label = [benchmark.label] * len(columns["group"])
    return RolloutBatch.from_columns(**columns, **optional, benchmark=label, success_reward=benchmark.success_reward)
