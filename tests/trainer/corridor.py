"""A corridor of rooms as a benchmark: small enough to check the trainer by hand, with variable episode lengths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from benchmarks.base import Observation, ParsedAction, StepResult, StepView, Task, TaskSet


class Pool:
    def __init__(self, slots: int, size: int):
        self.size, self._state = size, [(0, 0)] * slots

    def _observe(self, slot: int) -> Observation:
        at, goal = self._state[slot]
        text = f"you are in room {at} ."
        admissible = tuple(a for a, ok in (("go left", at > 0), ("go right", at < self.size - 1), ("wait", True)) if ok)
        keys = {"observation": text, "full": f"{text} goal {goal}"}
        return Observation(text, f"reach room {goal}", admissible, keys)

    def reset(self, tasks: Sequence[Task]) -> list[Observation]:
        for slot, task in enumerate(tasks):
            self._state[slot] = (task.payload["start"], task.payload["goal"])
        return [self._observe(slot) for slot in range(len(tasks))]

    def step(self, actions: Sequence[tuple[int, str]]) -> list[StepResult]:
        results = []
        for slot, action in actions:
            at, goal = self._state[slot]
            admissible = action in self._observe(slot).admissible
            if admissible:
                at += {"go left": -1, "go right": 1, "wait": 0}[action]
            self._state[slot] = (at, goal)
            won = at == goal
            results.append(StepResult(self._observe(slot), 10.0 if won else 0.0, won, won, admissible))
        return results

    def close(self) -> None:
        return None


class Corridor:
    name, label, success_reward, kinds = "corridor", "corridor-v1", 10.0, ("near", "far")

    def __init__(self, size: int = 6):
        self.size = size

    def record(self) -> dict[str, str]:
        return {"label": self.label}

    def task_set(self, split: str, count: int | None = None, offset: int = 0) -> TaskSet:
        pairs = [(s, g) for g in range(self.size) for s in range(self.size) if s != g]
        pairs = pairs[offset : None if count is None else offset + count]
        tasks = tuple(
            Task(f"{split}/{s}-{g}", "near" if abs(s - g) < 3 else "far", {"start": s, "goal": g}) for s, g in pairs
        )
        return TaskSet(self.label, split, tasks, tuple(t.id for t in tasks))

    def pool(self, slots: int, workers: int = 0) -> Pool:
        return Pool(slots, self.size)

    def messages(self, view: StepView) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.compact(view)}]

    def parse(self, reply: str) -> ParsedAction:
        found = re.search(r"<action>(.*?)</action>", reply)
        return ParsedAction(found.group(1) if found else reply, bool(found))

    def compact(self, view: StepView) -> str:
        past = " ".join(action for _, action in view.history)
        return f"{view.observation.goal} | {past} | {view.observation.text} [act]"

    def lexicon(self) -> tuple[str, ...]:
        return (
            "|",
            "reach",
            "room",
            "you",
            "are",
            "in",
            ".",
            "go",
            "left",
            "right",
            "wait",
            *map(str, range(self.size)),
        )

    def words(self, text: str) -> list[str]:
        return text.split()

    def demonstrations(self, tasks: Sequence[Task], runs: int, seed: int) -> Iterator[tuple[StepView, str]]:
        pool = self.pool(1)
        for task in tasks:
            observation, history = pool.reset([task])[0], []
            for step in range(self.size):
                action = "go right" if task.payload["goal"] > int(observation.text.split()[4]) else "go left"
                yield StepView(observation, step, self.size, tuple(history[-2:])), action
                history.append((observation.text, action))
                result = pool.step([(0, action)])[0]
                observation = result.observation
                if result.done:
                    break
