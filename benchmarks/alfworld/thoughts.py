"""An expert's replies in words: a thought made by rule from what is seen and done, then the action.

They stand in worked examples (see `algorithms.prompting`); the searcher of `oracle` has no thoughts of its own.
"""

from __future__ import annotations

import re

from benchmarks.base import StepView

_TREATMENTS = {"heat": "hot", "cool": "cool", "clean": "clean"}
_FORMS: tuple[tuple[str, str], ...] = (
    (r"go to (?P<place>.+)", "{state}, so the next place to go to is {place}."),
    (r"open (?P<place>.+)", "The {place} is closed; I have to open it to see or use what is inside."),
    (r"close (?P<place>.+)", "I am done with the {place} and close it."),
    (r"take (?P<thing>.+) from (?P<place>.+)", "The {thing} is here, and I can use it; I take it."),
    (r"(?:move|put) (?P<thing>.+) (?:to|in/on) (?P<place>.+)", "The {thing} goes to the {place}, and I am there now."),
    (r"(?P<how>heat|cool|clean) (?P<thing>.+) with (?P<place>.+)", "The {thing} must be {result}; {place} does that."),
    (r"use (?P<thing>.+)", "I have what has to be looked at, and the {thing} is here; I switch it on."),
    (r"examine (?P<thing>.+)", "I want to see more of the {thing}."),
)  # fmt: skip


def reply(view: StepView, action: str) -> str:
    """Thought and action, in the reply format of `protocol`."""
    thought = _thought(action, view.observation.facts.get("holding", ""))
    if not view.history:
        thought = f"My task is to {view.observation.goal}. {thought}"
    return f"<think>{thought}</think>\n<action>{action}</action>"


def _thought(action: str, held: str) -> str:
    state = f"I hold the {held} now" if held else "I have not found what I need yet"
    for pattern, sentence in _FORMS:
        found = re.fullmatch(pattern, action)
        if found:
            parts = found.groupdict()
            return sentence.format(state=state, result=_TREATMENTS.get(parts.get("how", ""), ""), **parts)
    return "I make sure of where I am and what I have."
