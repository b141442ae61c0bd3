"""State keys: what merges, what never does, and in whatever order it was met."""

from __future__ import annotations

import random

import numpy as np
import pytest

from algorithms import RolloutBatch, estimate
from algorithms.states import encode
from benchmarks.base import Task
from benchmarks.search_qa import make, questions
from benchmarks.search_qa.episode import STATE_KEYS
from benchmarks.search_qa.retrieval.base import Hit

SEARCH = "<search>{}</search>"
DOCS = {name: Hit(name, f"T{name}", f"text of {name} " * 40, 1.0) for name in "abcde"}


def engine_of(play, **by_query: str):
    """An episode whose queries find the documents named by letters."""
    episode = play()
    episode.engine.by_query = {query: [DOCS[letter] for letter in letters] for query, letters in by_query.items()}
    return episode


def keys_after(episode, *replies: str) -> list[dict[str, str]]:
    return [dict(episode.say(reply)[1].observation.keys) for reply in replies]


def test_all_keys_are_offered(play):
    assert tuple(play().start.keys) == STATE_KEYS


def test_doc_set_is_blind_to_order_and_query(play):
    one = keys_after(engine_of(play, x="abc"), SEARCH.format("x"))[0]
    other = keys_after(engine_of(play, y="cab"), SEARCH.format("y"))[0]
    third = keys_after(engine_of(play, z="abd"), SEARCH.format("z"))[0]
    assert one["doc_set"] == other["doc_set"] != third["doc_set"]
    assert one["text_similarity"] != other["text_similarity"]


def test_doc_history_is_the_set_of_all_documents_seen(play):
    one = keys_after(engine_of(play, x="ab", y="cd"), SEARCH.format("x"), SEARCH.format("y"))
    other = keys_after(engine_of(play, x="ab", y="cd"), SEARCH.format("y"), SEARCH.format("x"))
    assert one[1]["doc_history"] == other[1]["doc_history"]
    assert one[1]["doc_set"] != other[1]["doc_set"]
    again = keys_after(engine_of(play, x="ab", y="ba"), SEARCH.format("x"), SEARCH.format("y"))
    assert again[0]["doc_history"] == again[1]["doc_history"]  # nothing new


@pytest.mark.parametrize("name", STATE_KEYS)
def test_what_brings_nothing_keeps_the_key_of_its_predecessor(play, name):
    episode = engine_of(play, x="abc", nothing="")
    start = episode.start.keys[name]
    invalid, found, empty = keys_after(episode, "no tag", SEARCH.format("x"), SEARCH.format("nothing"))
    assert invalid[name] == start
    assert found[name] != start
    assert empty[name] == found[name]


@pytest.mark.parametrize("name", STATE_KEYS)
def test_invalid_actions_in_different_states_never_merge(play, name):
    one, other = engine_of(play, x="abc"), engine_of(play, x="de")
    after_one = keys_after(one, SEARCH.format("x"), "invalid")[1]
    after_other = keys_after(other, SEARCH.format("x"), "invalid")[1]
    assert after_one[name] != after_other[name]


@pytest.mark.parametrize("name", STATE_KEYS)
def test_answers_are_sinks_success_and_failure_apart(play, name):
    right = keys_after(play(), "<answer>Paris</answer>")[0][name]
    wrong = keys_after(play(), "<answer>Rome</answer>")[0][name]
    never = keys_after(play(generations=1), "hm")[0][name]
    assert len({right, wrong, never}) == 3
    assert play().start.keys[name] not in (right, wrong, never)


@pytest.mark.parametrize("profile", ["verl_agent", "search_r1"])
def test_a_success_without_an_answer_action_ends_as_one(play, profile):
    episode = play(profile=profile, generations=2)
    episode.engine.hits = [Hit("d9", "Poison", "<answer>Paris</answer>", 1.0)]
    keys = keys_after(episode, SEARCH.format("x"), "I give up")
    assert set(keys[-1].values()) == {"right"}


# --- GiGPO's similarity -----------------------------------------------------------------------------------------------


def batch_of(texts: list[str], order: list[int] | None = None) -> RolloutBatch:
    """One-step trajectories of one group that start in the given texts."""
    order = list(range(len(texts))) if order is None else order
    n = len(texts)
    columns = {
        "group": ["g"] * n, "trajectory": [f"t{i}" for i in range(n)], "step": [0] * n, "state": texts,
        "action": ["a"] * n, "next_state": ["right"] * n, "valid": [True] * n, "reward": [0.0] * n,
        "success": [False] * n,
    }  # fmt: skip
    return RolloutBatch.from_columns(
        success_reward=1.0, **{name: [values[i] for i in order] for name, values in columns.items()}
    )


@pytest.fixture(scope="module")
def observations() -> list[str]:
    """Three real passages an observation; some swapped, some cut, as groups of rollouts show them."""
    benchmark = make()
    pool = benchmark.pool(1)
    texts = []
    for question in questions.shipped("hotpotqa-mini")[:4]:
        pool.reset([Task("t", "x", {"question": question.text, "golden_answers": list(question.golds)})])
        (result,) = pool.step([(0, SEARCH.format(question.text.rstrip("?")))])
        texts.append(result.observation.keys["text_similarity"])
    return texts


def partition(texts: list[str], order: list[int]) -> set[frozenset[str]]:
    batch = batch_of(texts, order)
    encoded = encode(batch, "ratcliff")
    by_node: dict[int, set[str]] = {}
    for node, row in zip(encoded.state.tolist(), batch.layout.order.tolist(), strict=True):
        by_node.setdefault(node, set()).add(str(batch.column("trajectory")[row]))
    return {frozenset(members) for members in by_node.values()}


def test_similar_texts_merge_and_reordered_documents_do_not(observations):
    first = observations[0]
    lines = first.split("\n")
    swapped = "\n".join([lines[0], lines[2], lines[1], *lines[3:]])
    parts = partition([first, first[:-60], swapped, observations[1]], [0, 1, 2, 3])
    assert frozenset({"t0", "t1"}) in parts
    assert frozenset({"t2"}) in parts
    assert frozenset({"t3"}) in parts


def test_clusters_do_not_depend_on_the_order_of_the_batch(observations):
    texts = [text[: len(text) - cut] for text in observations for cut in (0, 30, 60, 400)]
    order = list(range(len(texts)))
    expected = partition(texts, order)
    assert 1 < len(expected) < len(texts)
    for seed in range(3):
        random.Random(seed).shuffle(order)
        assert partition(texts, order) == expected


def test_embedding_states_reach_the_estimators():
    """Cosine above 0.9 merges; the benchmark's `embed` is what the trainer hands on."""
    texts = ["north", "north by east", "east"]
    vectors = {"north": (0.0, 1.0), "north by east": (0.3, 1.0), "east": (1.0, 0.0), "right": (-1.0, -1.0)}
    batch = batch_of(texts)
    encoded = encode(batch, "embedding", lambda asked: np.array([vectors[text] for text in asked]))
    assert len(set(encoded.state.tolist())) == 2
    result = estimate(
        "gigpo", batch, embed=lambda asked: np.array([vectors[t] for t in asked]), state_matching="embedding"
    )
    assert result.diagnostics["merge_rate"] == pytest.approx(1 / 3)  # three rows act in two states
