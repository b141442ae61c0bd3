"""The three protocols: how replies are read, what comes back, what is scored. See docs/search_qa.md for the table.

strict      default; verl_agent's turns with its gaps closed: one tag or nothing, only the answer action is scored,
            tags in passages are escaped, passages are plain text with a limit each
search_r1   Search-R1 (arXiv 2503.09516, v0.2): one growing text, one generation more than searches, a cut at 500 tokens
verl_agent  the search environment of verl-agent, behind GiGPO's (arXiv 2505.10978) and later published numbers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.base import ParsedAction, StepView
from benchmarks.search_qa import actions, prompts
from benchmarks.search_qa.actions import Move
from benchmarks.search_qa.limits import Cutter
from benchmarks.search_qa.retrieval.base import Hit


@dataclass(frozen=True)
class Shown:
    """Passages as an observation: `text` is the observation, `plain` what of the passages can be read in it, `cut` how
    many texts were cut."""

    text: str
    plain: str
    cut: int


Information = Callable[[Sequence[Hit], Cutter], Shown]


@dataclass(frozen=True)
class Profile:
    """One protocol.

    parse, read        reply -> action; what was sent -> move
    messages           the prompt of a step
    information        hits -> observation
    invalid            the observation after an invalid action
    scores_transcript  the last answer tag anywhere in the text is scored, not the answer action
    reads_prompt       that text starts with the prompt, whose example is the first answer tag: two are needed
    legacy_empty       a gold that normalizes to "" is matched by an empty answer
    dialect            which field the published retrieval server reads
    cuts_left          prompts over the limit lose their left end
    """

    name: str
    parse: Callable[[str], ParsedAction]
    read: Callable[[str], Move]
    messages: Callable[[StepView], list[dict[str, str]]]
    information: Information
    invalid: str
    scores_transcript: bool
    reads_prompt: bool
    legacy_empty: bool
    dialect: str
    cuts_left: bool


def _strict_information(hits: Sequence[Hit], cutter: Cutter) -> Shown:
    """Each passage is cut by itself, so that the last one is never lost to a long first one."""
    cut = [cutter(hit.text) for hit in hits]
    passages = [(cutter(hit.title)[0], text) for hit, (text, _) in zip(hits, cut, strict=True)]
    plain = "\n".join(f"{title}\n{text}" for title, text in passages)
    return Shown(prompts.plain_information(passages), plain, sum(was_cut for _, was_cut in cut))


def _r1_information(hits: Sequence[Hit], cutter: Cutter) -> Shown:
    """The whole block is cut, closing tag and all."""
    text, was_cut = cutter(f"\n\n{prompts.r1_information(hits)}\n\n")
    return Shown(text, text, int(was_cut))


def _json_information(hits: Sequence[Hit], _: Cutter) -> Shown:
    return Shown(prompts.json_information(hits), "\n".join(f"{hit.title}\n{hit.text}" for hit in hits), 0)


PROFILES = {
    "strict": Profile(
        name="strict",
        parse=actions.parse_strict,
        read=actions.read_strict,
        messages=prompts.strict_messages,
        information=_strict_information,
        invalid=prompts.STRICT_INVALID,
        scores_transcript=False,
        reads_prompt=False,
        legacy_empty=False,
        dialect="queries",
        cuts_left=False,
    ),
    "search_r1": Profile(
        name="search_r1",
        parse=actions.parse_search_r1,
        read=actions.read_search_r1,
        messages=prompts.search_r1_messages,
        information=_r1_information,
        invalid=prompts.R1_INVALID,
        scores_transcript=True,
        reads_prompt=True,
        legacy_empty=True,
        dialect="queries",
        cuts_left=True,
    ),
    "verl_agent": Profile(
        name="verl_agent",
        parse=actions.parse_verl_agent,
        read=actions.read_verl_agent,
        messages=prompts.verl_agent_messages,
        information=_json_information,
        invalid="",
        scores_transcript=True,
        reads_prompt=False,
        legacy_empty=True,
        dialect="query",
        cuts_left=True,
    ),
}
