"""The optional format reward of Search-R1 v0.3: a right answer in a well-formed trajectory is worth most."""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchmarks.search_qa.scoring import mentions

STRUCTURE, FINAL, RETRIEVAL = 0.2, 0.1, 0.0
_TAG = re.compile(r"(</?(?:think|search|information|answer)>)")
_INFORMATION = re.compile(r"<information>(.*?)</information>", re.DOTALL)
# what may follow outside of tags: state -> opening tag -> state after its closing tag
_ORDER = {
    "start": {"<think>": "thought"},
    "thought": {"<search>": "searched", "<answer>": "end"},
    "searched": {"<information>": "informed"},
    "informed": {"<think>": "thought"},
}


def well_formed(response: str) -> bool:
    """Whether a trajectory reads think, (search, information, think) any number of times, answer, with nothing but
    white space between the tags and no tag inside another."""
    state, inside = "start", ""
    for part in _TAG.split(response):
        if _TAG.fullmatch(part):
            if inside:
                if part != inside.replace("<", "</"):
                    return False
                state, inside = _ORDER[state][inside], ""
            elif part in _ORDER.get(state, {}):
                inside = part
            else:
                return False
        elif part.strip() and not inside:
            return False
    return state == "end" and not inside


def format_reward(
    response: str,
    golds: Iterable[str],
    *,
    answered: bool,
    right: bool,
    structure: float = STRUCTURE,
    final: float = FINAL,
    retrieval: float = RETRIEVAL,
) -> float:
    """Reward of a whole trajectory.

    right: 1, or 1 - structure when malformed; wrong: structure (+ retrieval where a gold stands in an information
    block) when well-formed, else final; without an answer: the same as wrong when well-formed, else 0.
    """
    formed = well_formed(response)
    if right:
        return 1.0 if formed else 1.0 - structure
    if formed:
        retrieved = mentions("\n".join(_INFORMATION.findall(response)), golds)
        return structure + (retrieval if retrieved else 0.0)
    return final if answered else 0.0
