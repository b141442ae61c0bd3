"""The prompt of one step for a chat model, and how its reply is read.

Structure as published for step-level training on ALFWorld (GiGPO, arXiv:2505.10978): a single user turn with the
task, the last few (observation, action) pairs and the admissible actions; the reply thinks, then names one action.
The wording is ours.
"""

from __future__ import annotations

import re

from benchmarks.base import Observation, ParsedAction, StepView

_ROLE = "You control a household robot in ALFRED Embodied Environment."
_FORMAT = (
    "Choose the next action. First think step by step about the situation inside <think> </think> tags. "
    "Then give exactly one admissible action inside <action> </action> tags."
)
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_CJK = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af]")
_FALLBACK = 30  # characters of a reply without tags that are sent to the environment


def messages(view: StepView, history: int) -> list[dict[str, str]]:
    """One user message. Before the first action, or with `history=0`, the short form without the past."""
    body = _with_past(view, history) if view.step > 0 and history > 0 else _without_past(view.observation)
    actions = "\n".join(f"'{command}'" for command in view.observation.admissible)
    return [{"role": "user", "content": f"{_ROLE}\n{body}\nAdmissible actions:\n[{actions}]\n\n{_FORMAT}"}]


def _without_past(observation: Observation) -> str:
    return f"What you observe: {observation.text}"


def _with_past(view: StepView, history: int) -> str:
    recent = view.history[-history:]
    first = view.step - len(recent) + 1
    past = "\n".join(
        f"[Observation {number}: '{text}', Action {number}: '{action}']"
        for number, (text, action) in enumerate(recent, start=first)
    )
    return (
        f"Your task: {view.observation.goal}\n"
        f"Steps taken so far: {view.step}. The latest {len(recent)} of them:\n{past}\n"
        f"Step {view.step + 1}. What you observe now: {view.observation.text}"
    )


def parse(reply: str) -> ParsedAction:
    """The action of a reply, lower case.

    The first `<action>..</action>` counts; without one, the last 30 characters are sent and the format is invalid.
    Valid also needs a `<think>..</think>` and no Chinese, Japanese or Korean characters. Whether the action is
    admissible is the environment's to say, not the format's.
    """
    text = reply.lower()
    found = _ACTION.search(text)
    if found is None:
        return ParsedAction(text[-_FALLBACK:].strip(), format_valid=False)
    valid = _THOUGHT.search(text) is not None and _CJK.search(reply) is None
    return ParsedAction(found[1].strip(), format_valid=valid)
