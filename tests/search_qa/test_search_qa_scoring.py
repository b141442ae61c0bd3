"""Exact match and its neighbors: worked examples, guards, properties."""

from __future__ import annotations

import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.search_qa.rewards import format_reward, well_formed
from benchmarks.search_qa.scoring import exact_match, f1, mentions, normalize, substring_match


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("1,000", "1000"),
        ("U.S.", "us"),
        ("The Beatles", "beatles"),
        ("10-20", "1020"),
        ("0.5", "05"),
        ("C++", "C"),
        (" a  Cat\nand the dog ", "cat and dog"),
        ("Zurich, an old city", "zurich old city"),
        ("Ștefan", "Ștefan"),  # composed against decomposed
        ("A+", "a+"),
        ("The The", "the the"),
    ],
)
def test_equal_after_normalization(answer, gold):
    assert exact_match(answer, [gold])


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("“Paris”", "Paris"),  # curly quotes stay
        ("1–2", "12"),  # so does the en dash
        ("two", "2"),
        ("theater", "ater"),  # an article is a word
        ("", ""),
        ("", "A+"),
        ("  ", "The The"),
        ("the", "A+"),
        ("A", "A+"),
        (None, "Paris"),
        ("Paris", ""),
    ],
)
def test_unequal(answer, gold):
    assert not exact_match(answer, [gold])


def test_any_of_several_golds_is_enough():
    assert exact_match("NYC", ["New York City", "NYC"])
    assert not exact_match("NYC", ["New York City", "New York"])
    assert not exact_match("NYC", [])


def test_published_code_lets_an_empty_answer_match_a_gold_of_articles():
    assert exact_match("", ["A+"], legacy_empty=True)
    assert exact_match("the", ["A+"], legacy_empty=True)
    assert not exact_match(None, ["A+"], legacy_empty=True)
    assert not exact_match("", ["Paris"], legacy_empty=True)


@given(st.text(max_size=40))
def test_normalization_is_idempotent_and_case_blind(text):
    once = normalize(text)
    assert not set(once) & set(string.punctuation)
    assert once == " ".join(once.split())
    assert normalize(text.lower()) == once


@given(st.text(max_size=30), st.lists(st.text(max_size=30), max_size=3))
def test_exact_match_implies_full_scores(answer, golds):
    if exact_match(answer, golds):
        assert f1(answer, golds) == pytest.approx(1.0)
        assert substring_match(answer, golds) == 1.0
    assert 0.0 <= f1(answer, golds) <= 1.0


@given(st.lists(st.sampled_from(["red", "green", "blue"]), max_size=6), st.lists(st.sampled_from(["red", "blue"])))
def test_f1_against_a_slow_count(mine, gold):
    left, pool, shared = list(mine), list(gold), 0
    for word in left:
        if word in pool:
            pool.remove(word)
            shared += 1
    expected = 2 * shared / (len(mine) + len(gold)) if shared else 0.0
    assert f1(" ".join(mine), [" ".join(gold)]) == pytest.approx(expected)
    assert shared == (Counter(mine) & Counter(gold)).total()


def test_f1_and_substring_examples():
    assert f1("Barack Obama", ["Barack Hussein Obama"]) == pytest.approx(0.8)
    assert f1(None, ["x"]) == f1("", ["x"]) == f1("y", []) == 0.0
    assert substring_match("It was Paris, France.", ["paris"]) == 1.0
    assert substring_match("Par", ["Paris"]) == 0.0
    assert substring_match("", ["A+"]) == 0.0


def test_a_gold_is_mentioned_as_whole_words():
    assert mentions("He lived in New York City.", ["new york"])
    assert mentions("A New York-based firm", ["New York"])
    assert mentions("in the U.S. alone", ["us"])
    assert not mentions("He was an artist.", ["art"])
    assert not mentions("anything", ["The The"])


# --- format reward ----------------------------------------------------------------------------------------------------

GOOD = "<think>a</think><search>q</search>\n<information>Paris</information>\n<think>b</think><answer>Paris</answer>"


@pytest.mark.parametrize(
    ("text", "formed"),
    [
        (GOOD, True),
        ("<think>a</think><answer>x</answer>", True),
        (" <think>a</think>\n\n<answer>x</answer>\n", True),
        ("<answer>x</answer>", False),
        ("hm <think>a</think><answer>x</answer>", False),
        ("<think>a</think><search>q</search><think>b</think><answer>x</answer>", False),
        ("<think>a</think><search>q</search><information>i</information><answer>x</answer>", False),
        ("<think>a</think><answer>x</answer> and more", False),
        ("<think>a</think><answer>x", False),
        ("<think><answer>x</answer></think>", False),
        ("<think>a</think><answer>x</answer><think>b</think><answer>y</answer>", False),
        ("", False),
    ],
)
def test_well_formed(text, formed):
    assert well_formed(text) is formed


@pytest.mark.parametrize(
    ("text", "answered", "right", "expected"),
    [
        (GOOD, True, True, 1.0),
        ("<answer>Paris</answer>", True, True, 0.8),
        (GOOD, True, False, 0.2),
        ("<answer>Lyon</answer>", True, False, 0.1),
        ("no tags at all", False, False, 0.0),
        (GOOD, False, False, 0.2),
    ],
)
def test_format_reward_of_search_r1(text, answered, right, expected):
    assert format_reward(text, ["Paris"], answered=answered, right=right) == pytest.approx(expected)


def test_retrieval_term_needs_a_gold_in_an_information_block():
    assert format_reward(GOOD, ["Paris"], answered=True, right=False, retrieval=0.1) == pytest.approx(0.3)
    assert format_reward(GOOD, ["Rome"], answered=True, right=False, retrieval=0.1) == pytest.approx(0.2)
