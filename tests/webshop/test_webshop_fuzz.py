"""Random and hostile actions end in a page or do nothing; they never raise, and never leave a page that cannot be."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.webshop import WebShop, make
from benchmarks.webshop.session import DONE, Session, parse_action

SIGNS = (
    "[", "]", "[[", "]]", "\n", "\r", "\0", " ", "é", "漢", "🛒", "\u202e", "\ud800",
    '"', "'", "<", "&", "/", "%s", "{}",
)  # fmt: skip
HOSTILE = (
    "", "[", "]", "[]", "search[", "search[]", "search[ ]", "click[]", "search" * 900, "[" * 10_000, "]" * 10_000,
    "search[" + "a" * 10_000 + "]", "search[" + "w " * 5_000 + "]", "search[" + "[" * 9_000 + "]", "click[\n]",
    "search[" + " ".join(f"w{n}" for n in range(2_000)) + "]", "search[🛒🛒🛒]", "search[<r>]", "search[<a> x]",
    "search[<c>]", "search[<q>]", "search[item_page]", "search[search_results]", "click[buy now]", "click[search]",
    "search[\ud800]", "click[\ud800]", "search['; DROP TABLE products; --]", "search[%]", "search[\0]",
)  # fmt: skip
WALKS = (("text", False, 1), ("text", True, 2), ("text_rich", True, 3), ("text_rich", False, 4))


def _pattern(action: str) -> tuple[str, str] | None:
    """The original's greedy pattern, read by brute force."""
    line = action.split("\n")[0]
    for opened in reversed(range(1, len(line))):
        if line[opened] == "[":
            for close in reversed(range(opened + 2, len(line))):
                if line[close] == "]":
                    return line[:opened], line[opened + 1 : close]
    return None


@given(st.text(alphabet="sc[]\n x", max_size=14))
@settings(max_examples=500)
def test_actions_are_read_like_the_greedy_pattern(action: str) -> None:
    assert parse_action(action) == _pattern(action)


def _action(session: Session, rng: random.Random) -> str:
    """A click on something shown, a query of words seen, a hostile text, or a mixture of signs."""
    kind = rng.random()
    labels = list(session.page.clickables)
    if kind < 0.5 and labels:
        return f"click[{rng.choice(labels)}]"
    if kind < 0.6:
        words = session.text().split()
        return f"search[{' '.join(rng.choices(words, k=rng.randint(1, 5)))}]"
    if kind < 0.7:
        return rng.choice(HOSTILE)
    name = rng.choice(("search", "click", "Search", "", "x"))
    return f"{name}[{''.join(rng.choices((*SIGNS, 'a', 'chair'), k=rng.randint(0, 12)))}]"


def _walk(benchmark: WebShop, count: int, seed: int) -> None:
    rng = random.Random(seed)
    rich = benchmark.options.observation == "text_rich"
    session, pages = benchmark.episode(benchmark.task_set("train", 1).tasks[0]).session, set()
    for _ in range(count):
        before = session.state
        step = session.step(_action(session, rng))
        pages.add(session.state.page)
        text = session.text(rich)
        assert text
        assert step.accepted or session.state == before
        assert step.done == (session.state.page == DONE and step.accepted)
        assert 0 <= step.reward <= 1
        assert step.reward == 0 or step.done
        if step.done:
            assert not session.page.clickables
    assert len(pages) == 5


@pytest.mark.parametrize(("observation", "legacy", "seed"), WALKS)
def test_a_hundred_thousand_random_actions(observation: str, legacy: bool, seed: int) -> None:
    _walk(make(observation=observation, legacy_queries=legacy, show_attributes=legacy), 100_000 // len(WALKS), seed)


@pytest.mark.parametrize("commands", ["official", "short"])
def test_hostile_replies_through_the_benchmark(commands: str) -> None:
    benchmark = make(commands=commands)
    task = benchmark.task_set("train", 1).tasks[0]
    for reply in HOSTILE:
        parsed = benchmark.parse(f"<think>x</think><action>{reply}</action>")
        result = benchmark.episode(task).step(parsed.action)
        assert result.observation.text
        assert not result.success
        assert benchmark.episode(task).step(benchmark.parse(reply).action).observation.keys["full"]
