"""How replies become actions in the three profiles, and how an action becomes a move.

An action is text with its tag, `<search>query</search>` or `<answer>text</answer>`; "" is an invalid one. The rules
of `search_r1` and `verl_agent` are those of the published code, gaps included; `strict` closes the gaps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from benchmarks.base import ParsedAction

_FLAGS = re.DOTALL | re.IGNORECASE
_TAG = re.compile(r"<(/?)(search|answer)>", re.IGNORECASE)
_SEARCH = re.compile(r"<search>(.*?)</search>", _FLAGS)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", _FLAGS)
_FIRST_OF_BOTH = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
_EXACT_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


@dataclass(frozen=True)
class Move:
    """What an action asks for; `text` is the query or the answer."""

    kind: Literal["search", "answer", "invalid"]
    text: str = ""


INVALID = Move("invalid")


def cut(reply: str) -> str:
    """The reply up to the first `</search>`, else up to the first `</answer>` (both published code bases)."""
    for tag in ("</search>", "</answer>"):
        head, found, _ = reply.partition(tag)
        if found:
            return head + found
    return reply


def last_answer(text: str, least: int = 1) -> str | None:
    """Content of the last `<answer>` block, if there are at least `least` of them."""
    found = _EXACT_ANSWER.findall(text)
    return found[-1].strip() if len(found) >= least else None


# --- strict -----------------------------------------------------------------------------------------------------------


def read_strict(action: str) -> Move:
    """The one action of a text. Both tags, one tag twice, a tag without its partner, or nothing inside: invalid."""
    tags = _TAG.findall(action)
    names = [(slash, name.lower()) for slash, name in tags]
    if len(names) != 2 or names[0][1] != names[1][1] or (names[0][0], names[1][0]) != ("", "/"):
        return INVALID
    start, end = _TAG.finditer(action)
    text = action[start.end() : end.start()].strip()
    if not text:
        return INVALID
    return Move("search" if names[0][1] == "search" else "answer", text)


def parse_strict(reply: str) -> ParsedAction:
    """The whole reply counts: an answer tag inside a search tag, or in the thoughts, makes it invalid."""
    move = read_strict(reply)
    return ParsedAction(_tagged(move), format_valid=move is not INVALID)


def _tagged(move: Move) -> str:
    return "" if move.kind == "invalid" else f"<{move.kind}>{move.text}</{move.kind}>"


# --- verl_agent -------------------------------------------------------------------------------------------------------


def parse_verl_agent(reply: str) -> ParsedAction:
    """Search before answer, case ignored, in the cut reply. Both tags or one of them twice: executed all the same,
    but marked invalid."""
    text = cut(reply)
    search, answer = _SEARCH.search(text), _ANSWER.search(text)
    if search:
        action = f"<search>{search[1].strip()}</search>"
    elif answer:
        action = f"<answer>{answer[1].strip()}</answer>"
    else:
        return ParsedAction("", format_valid=False)
    searches, answers = len(_SEARCH.findall(reply)), len(_ANSWER.findall(reply))
    return ParsedAction(action, format_valid=searches + answers == 1)


def read_verl_agent(action: str) -> Move:
    """An action that holds an answer tag ends the episode, even inside a search; an empty query is searched."""
    if "<answer>" in action and "</answer>" in action:
        return Move("answer", last_answer(action) or "")
    search = _SEARCH.search(action)
    return Move("search", search[1].strip()) if search else INVALID


# --- search_r1 --------------------------------------------------------------------------------------------------------


def parse_search_r1(reply: str) -> ParsedAction:
    """The first complete tag of the cut reply. The environment gets the whole cut reply: the context is one growing
    text, and the published scorer reads all of it."""
    text = cut(reply)
    move = read_search_r1(text)
    return ParsedAction(_tagged(move), format_valid=move is not INVALID, message=text)


def read_search_r1(reply: str) -> Move:
    """The first complete tag, case-sensitive; an empty query is searched."""
    found = _FIRST_OF_BOTH.search(reply)
    if not found:
        return INVALID
    return Move("search" if found[1] == "search" else "answer", found[2].strip())
