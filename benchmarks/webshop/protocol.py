"""The prompt of one step for a chat model, and how its reply is read.

Structure as published for step-level training on WebShop (GiGPO, arXiv:2505.10978): a single user turn with the task,
the last few (observation, action) pairs and the admissible actions; the reply thinks, then names one action. The
wording is ours.
"""

from __future__ import annotations

import re

from benchmarks.base import Observation, ParsedAction, StepView

LONGEST = 13_000  # characters; a longer prompt goes without the past
_ROLE = "You shop in the WebShop online store and act as an expert."
_FORMAT = (
    "Choose the next action. First think step by step about the shopping task inside <think> </think> tags. "
    "Then give exactly one admissible action inside <action> </action> tags."
)
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_CJK = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af]")
_FALLBACK = 20  # characters of a reply without tags that are sent to the environment


def shown(text: str, instruction: str) -> str:
    """What follows the task in an observation of `text` mode, each segment quoted; other texts as they are."""
    parts, task = text.split(" [SEP] "), instruction.strip()  # pages strip what they show
    if task not in parts:
        return text
    return " [SEP] ".join(f"'{part}'" for part in parts[parts.index(task) + 1 :])


def messages(view: StepView, history: int, actions: tuple[str, ...]) -> list[dict[str, str]]:
    """One user message; the past is left out before the first action, with `history=0`, and where it is too long."""
    content = _prompt(view, history if view.step else 0, actions)
    if len(content) > LONGEST:
        content = _prompt(view, 0, actions)
    return [{"role": "user", "content": content}]


def _prompt(view: StepView, history: int, actions: tuple[str, ...]) -> str:
    parts = [_ROLE, f"Your task: {view.observation.goal}"]
    if history and view.history:
        parts += [_past(view, history), f"Step {view.step + 1}. What you observe now: {view.observation.text}"]
    else:
        parts.append(f"What you observe: {view.observation.text}")
    listed = "\n".join(f"'{action}'," for action in actions)
    return "\n".join([*parts, f"Admissible actions:\n[\n{listed}\n]", "", _FORMAT])


def _past(view: StepView, history: int) -> str:
    recent = view.history[-history:]
    first = view.step - len(recent) + 1
    lines = [
        f"[Observation {number}: '{text}', Action {number}: '{action}']"
        for number, (text, action) in enumerate(recent, start=first)
    ]
    return "\n".join([f"Steps taken so far: {view.step}. The latest {len(recent)} of them:", *lines])


def offered(observation: Observation, click_search: bool) -> tuple[str, ...]:
    """Actions that a prompt lists: a search with a query to be written, where there is a search bar, and clicks."""
    clicks = [label for label in observation.facts["clickables"].split("\x1f") if label]
    if not click_search:
        clicks = [label for label in clicks if label != "search"]
    search = ["search[<your query>]"] if observation.facts["search_bar"] else []
    return (*search, *(f"click[{label}]" for label in clicks))


def parse(reply: str) -> ParsedAction:
    """The action of a reply, lower case.

    The first `<action>..</action>` counts; without one, the last 20 characters are sent and the format is invalid.
    Valid also needs a `<think>..</think>` and no Chinese, Japanese or Korean characters. Whether the action is
    admissible is the environment's to say, not the format's.
    """
    text = reply.lower()
    found = _ACTION.search(text)
    if found is None:
        return ParsedAction(text[-_FALLBACK:], format_valid=False)
    valid = _THOUGHT.search(text) is not None and _CJK.search(reply) is None
    return ParsedAction(found[1].strip(), format_valid=valid)
