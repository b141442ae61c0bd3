"""What the agent reads: prompts, and retrieved passages as text. The structure is each protocol's, the wording ours."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from benchmarks.base import StepView
from benchmarks.search_qa.retrieval.base import Hit

EXAMPLE = "<answer>Beijing</answer>"
R1_EXAMPLE = "<answer> Beijing </answer>"
STRICT_INVALID = "Nothing was done: a reply needs exactly one search tag or exactly one answer tag, with text inside."
R1_INVALID = (
    "\nThat was not a valid action. To look something up, write a query between <search> and </search>. "
    "To finish, write the final answer inside one answer tag. I will try again.\n"
)
_STRUCTURE = re.compile(r"<(\s*/?\s*(?:think|search|information|answer)\s*>|\|)", re.IGNORECASE)
_HOW = (
    "Think first, inside <think> </think> tags. Then do one of two things:\n"
    "- look something up: <search>your query</search>; passages come back inside <information> </information>;\n"
    f"- finish: <answer>your answer</answer>, a few words without explanation, for example {EXAMPLE}."
)


def escape(text: str) -> str:
    """Tags of the protocol and markers of chat templates, made harmless: "<answer>" -> "&lt;answer>"."""
    return _STRUCTURE.sub(lambda found: f"&lt;{found[1]}", text)


# --- passages ---------------------------------------------------------------------------------------------------------


def plain_information(passages: Sequence[tuple[str, str]]) -> str:
    """(title, text) pairs as plain text, one passage a line, tags escaped."""
    if not passages:
        return "<information>\nNo passages were found.\n</information>"
    lines = [f"[{rank}] {escape(title)}: {escape(_one_line(text))}" for rank, (title, text) in enumerate(passages, 1)]
    return "\n".join(["<information>", *lines, "</information>"])


def r1_information(hits: Sequence[Hit]) -> str:
    """Search-R1's block, without its surrounding blank lines. Titles keep the quotes that wiki-18 has them in."""
    text = "\n".join(f'Doc {rank}(Title: "{hit.title}") {hit.text}' for rank, hit in enumerate(hits, 1))
    return f"<information>{text.strip()}</information>"


def json_information(hits: Sequence[Hit]) -> str:
    """verl-agent's block: one JSON string, so that line ends and other than ASCII characters arrive escaped."""
    text = "\n".join(f'Doc {rank}: "{hit.title}"\n {hit.text}' for rank, hit in enumerate(hits, 1))
    return f"\n<information>{json.dumps({'result': text})}</information>\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


# --- prompts ----------------------------------------------------------------------------------------------------------


def strict_messages(view: StepView) -> list[dict[str, str]]:
    """One user message a step, with the past actions and what they brought."""
    left = view.horizon - view.step
    budget = f"Actions left: {left}." + (" This is the last one: answer now." if left == 1 else "")
    past = [f"Step {n}:{action.replace('<|', '&lt;|') or 'invalid'}\n{seen}" for n, action, seen in _past(view)]
    return _user(f"Question: {escape(view.observation.goal)}", *past, budget, _HOW)


def verl_agent_messages(view: StepView) -> list[dict[str, str]]:
    """One user message a step; the first without history."""
    question = (
        f"You are an expert agent that answers questions with a search engine.\nQuestion: {view.observation.goal}"
    )
    if view.step == 0:
        return _user(question, _HOW)
    past = [f"Step {n}:{action} {seen}" for n, action, seen in _past(view)]
    return _user(question, f"Steps taken so far: {view.step}. Their record:", *past, _HOW)


def search_r1_messages(view: StepView) -> list[dict[str, str]]:
    """One user message, then everything written and found so far as one open assistant turn."""
    messages = _user(search_r1_prompt(view.observation.goal))
    grown = "".join(reply + seen for _, reply, seen in _past(view))
    return [*messages, {"role": "assistant", "content": grown}] if grown else messages


def search_r1_prompt(question: str) -> str:
    """The user message. It holds one complete answer tag, its example: the published scorer counts that one."""
    return (
        "Answer the question at the end. Whenever new information arrives, reason first inside <think> and </think>. "
        "If knowledge is missing, call a search engine with <search> query </search>; it returns the top results "
        "between <information> and </information>. Search as often as needed. When nothing more is needed, give the "
        f"answer alone in an answer tag, without explanation. For example, {R1_EXAMPLE}. Question: {question}\n"
    )


def _past(view: StepView) -> list[tuple[int, str, str]]:
    """(number of the step, action, what came back), oldest first."""
    seen = [text for text, _ in view.history[1:]] + [view.observation.text]
    first = view.step - len(view.history) + 1
    return [(first + i, action, seen[i]) for i, (_, action) in enumerate(view.history)]


def _user(*parts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "\n\n".join(parts)}]
