"""An expert's replies in words: a thought made by rule from what is seen and done, then the action.

They stand in worked examples (see `algorithms.prompting`); the shopper of `oracle` has no thoughts of its own.
"""

from __future__ import annotations

from benchmarks.base import StepView
from benchmarks.webshop.session import parse_action

_BUTTONS = {
    "buy now": "Everything that the task asks for is chosen, so I buy it.",
    "back to search": "Nothing here fits; I go back and search in other words.",
    "next >": "None of these products fits; I look at the next page of results.",
    "< prev": "I have seen enough of this page and go back.",
}
_DETAILS = ("description", "features", "reviews", "attributes")


def reply(view: StepView, action: str) -> str:
    """Thought and (official) action, in the reply format of `protocol`."""
    return f"<think>{_thought(view, action)}</think>\n<action>{action}</action>"


def _thought(view: StepView, action: str) -> str:
    name, argument = parse_action(action) or ("", action)
    if name == "search":
        return f"The task is this: {view.observation.goal}. The words that tell most make a good query."
    if argument in _BUTTONS:
        return _BUTTONS[argument]
    if argument in _DETAILS:
        return f"The {argument} may tell whether the product fits."
    if "buy now" in view.observation.facts.get("clickables", "").split("\x1f"):
        return f"Of the choices on this page, {argument} is what the task asks for."
    return f"Of these products, {argument} matches the wish best by title and price; I open it."
