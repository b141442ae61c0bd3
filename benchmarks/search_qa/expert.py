"""An expert for open questions, and its replies in words.

It knows the right answers, as nobody who plays does: it searches for the question, then for the names in it, and
answers as soon as an answer stands in what was found. Its episodes are worked examples (see `algorithms.prompting`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from benchmarks.base import EnvironmentPool, StepView, Task
from benchmarks.search_qa import scoring

_NAME = re.compile(r"(?:[A-Z][\w'.-]*)(?:\s+(?:of|the|and|de|[A-Z][\w'.-]*))*\b")
_QUERY = re.compile(r"<search>(.*?)</search>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def demonstrations(
    pool: EnvironmentPool, tasks: Sequence[Task], runs: int, generations: int
) -> Iterator[tuple[StepView, str]]:
    """(view, action) of the expert, which is deterministic: `runs` repeat themselves. An episode without the answer
    in any passage ends unanswered."""
    for task in tasks:
        for _ in range(runs):
            yield from _demonstration(pool, task, generations)


def _demonstration(pool: EnvironmentPool, task: Task, generations: int) -> Iterator[tuple[StepView, str]]:
    question, golds = str(task.payload["question"]), list(task.payload["golden_answers"])
    (observation,) = pool.reset([task])
    history: list[tuple[str, str]] = []
    queries = iter(_queries(question))
    while len(history) < generations:
        known = bool(history) and scoring.mentions(observation.text, golds)
        query = None if known else next(queries, None)
        if not known and query is None:
            return
        action = f"<answer>{golds[0]}</answer>" if known else f"<search>{query}</search>"
        yield StepView(observation, len(history), generations, tuple(history)), action
        history.append((observation.text, action))
        (result,) = pool.step([(0, action)])
        observation = result.observation
        if result.done:
            return


def _queries(question: str) -> list[str]:
    """The question, then each name in it; the first word is no name by its capital alone."""
    _, _, rest = question.partition(" ")
    return list(dict.fromkeys([question, *_NAME.findall(rest)]))


def reply(view: StepView, action: str) -> str:
    """Thought and action, in the reply format of all profiles."""
    return f"<think>{_thought(view, action)}</think>\n{action}"


def _thought(view: StepView, action: str) -> str:
    answer, query = _ANSWER.search(action), _QUERY.search(action)
    if answer:
        return f"The passages say what was asked for: {answer[1].strip()}."
    if not view.history:
        return "I am not sure of the answer, so I look the question up."
    name = query[1].strip() if query else "more"
    return f"The passages so far do not answer the question; {name} may lead further."
