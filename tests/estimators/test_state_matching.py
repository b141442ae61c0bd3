"""Which keys become one node."""

from __future__ import annotations

import numpy as np
import pytest
from batches import batch_of, episode, shuffled

from algorithms import estimate
from algorithms.states import encode

BASE = "the quick brown fox jumps over the lazy dog and runs away"


def nodes_of(rows, *args):
    """Node of each row's state, numbered by first appearance."""
    batch = batch_of(rows)
    node = batch.layout.unsort(encode(batch, *args).state)
    return np.unique(node, return_inverse=True)[1].tolist()


def starts(*states, group="g"):
    return [row for t, state in enumerate(states) for row in episode(t, [state, "end"], t == 0, group=group)]


def test_exact_matching_merges_equal_keys_within_a_group_only():
    rows = starts("a", "b", "a") + starts("a", group="other")
    assert nodes_of(rows) in ([0, 1, 0, 2], [1, 0, 1, 2])


def test_ratcliff_merges_keys_that_resemble_the_first_member():
    near, far = BASE.replace("lazy", "hazy"), "nothing at all like it"
    node = nodes_of(starts(BASE, near, far), "ratcliff")
    assert node[0] == node[1] != node[2]
    assert len(set(nodes_of(starts(BASE, near, far)))) == 3


def test_ratcliff_compares_with_the_first_member_not_the_last():
    # Each text resembles the one before it; the last one does not resemble the first, and "a" < "b" < ... orders them.
    chain = ["a" * 20 + "b" * k for k in (0, 4, 8)]
    node = nodes_of(starts(*chain), "ratcliff")
    assert node[0] == node[1]  # 2*20/44 = 0.909
    assert node[2] != node[0]  # 2*20/48 = 0.833, though 2*24/52 = 0.923 against the second


@pytest.mark.parametrize("matching", ["ratcliff", "embedding"])
@pytest.mark.parametrize("seed", range(5))
def test_clusters_do_not_depend_on_the_order_of_rows(matching, seed):
    rng = np.random.default_rng(seed)
    letters = ["a" * 20 + "b" * int(k) for k in rng.integers(0, 12, size=8)]
    rows = starts(*letters)
    moved, order = shuffled(rows, seed)
    embed = angle_embed if matching == "embedding" else None
    original = estimate("gigpo", batch_of(rows), state_matching=matching, embed=embed).advantages
    result = estimate("gigpo", batch_of(moved), state_matching=matching, embed=embed).advantages
    np.testing.assert_allclose(result, original[order], atol=1e-12)


def angle_embed(texts):
    """Unit vectors that turn by 0.1 rad a letter: cosine > 0.9 within four letters."""
    angle = 0.1 * np.array([len(text) for text in texts])
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def test_embedding_merges_by_cosine_with_the_first_member():
    texts = ["a" * n for n in (10, 14, 15, 18)]
    node = nodes_of(starts(*texts), "embedding", angle_embed)
    assert node[0] == node[1]  # 4 letters: cos 0.4 = 0.92
    assert node[2] == node[3] != node[0]  # 5 letters from the first: cos 0.5 = 0.88


def test_embedding_sees_each_distinct_text_once_and_lengths_of_vectors_do_not_matter():
    calls = []

    def embed(texts):
        calls.append(list(texts))
        return angle_embed(texts) * np.array([[3.0 + len(text)] for text in texts])

    rows = starts("aaa", "aaaa", "aaa") + starts("aaa", group="other")
    batch = batch_of(rows)
    first = encode(batch, "embedding", embed)
    assert encode(batch, "embedding", embed) is first
    assert len(calls) == 1
    assert sorted(calls[0]) == ["aaa", "aaaa", "end"]


def test_a_zero_vector_resembles_nothing():
    node = nodes_of(starts("x", "y"), "embedding", lambda texts: np.zeros((len(texts), 3)))
    assert node == [0, 1]


def test_embedding_without_an_embedder_says_what_is_missing():
    with pytest.raises(ValueError, match=r"state_matching='embedding' needs embed="):
        estimate("graft", batch_of(starts("a")), state_matching="embedding")


@pytest.mark.parametrize("vectors", [np.zeros((1, 3)), np.zeros(2), np.full((2, 3), np.nan)])
def test_an_embedder_with_a_wrong_result_is_refused(vectors):
    with pytest.raises(ValueError, match=r"embed must return finite vectors \[2, dim\]"):
        estimate("graft", batch_of(starts("a")), state_matching="embedding", embed=lambda texts: vectors)


def test_matching_changes_the_graph_of_every_graph_method():
    near = BASE.replace("lazy", "hazy")
    rows = episode(0, ["s", BASE, "won"], True) + episode(1, ["s", near, "lost"], False)
    for name in ("graphgpo", "graphhca", "graft"):
        exact = estimate(name, batch_of(rows)).advantages
        assert not np.allclose(exact, estimate(name, batch_of(rows), state_matching="ratcliff").advantages)
