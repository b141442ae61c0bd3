"""What no estimator may depend on: the order of rows, the names of things, other groups."""

from __future__ import annotations

import numpy as np
import pytest
from batches import batch_of, episode, shuffled
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_oracle import random_rows

from algorithms import built_in, estimate

QUICK = settings(max_examples=20, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


def advantages(name, rows, **options):
    return estimate(name, batch_of(rows), **options).advantages


@pytest.mark.parametrize("name", built_in())
class TestEveryEstimator:
    @QUICK
    @given(seed=seeds)
    def test_row_order_only_orders_the_output(self, name, seed):
        rows = random_rows(np.random.default_rng(seed))
        moved, order = shuffled(rows, seed)
        np.testing.assert_allclose(advantages(name, moved), advantages(name, rows)[order], rtol=0, atol=1e-9)

    @QUICK
    @given(seed=seeds)
    def test_names_mean_nothing(self, name, seed):
        rows = random_rows(np.random.default_rng(seed))
        renamed = [
            dict(
                row,
                group=f"z{row['group']}"[::-1],
                trajectory=f"t{9 - row['trajectory']}",
                state=f"é{row['state'][::-1]}\n",
                next_state=f"é{row['next_state'][::-1]}\n",
                action="",
            )
            for row in rows
        ]
        np.testing.assert_allclose(advantages(name, renamed), advantages(name, rows), rtol=0, atol=1e-9)

    @QUICK
    @given(seed=seeds)
    def test_a_group_does_not_see_another(self, name, seed):
        rng = np.random.default_rng(seed)
        alone = random_rows(rng, groups=1)
        other = [dict(row, group="other") for row in random_rows(rng, groups=1, states=4)]
        together = advantages(name, other + alone)[len(other) :]
        np.testing.assert_allclose(together, advantages(name, alone), rtol=0, atol=1e-9)

    @QUICK
    @given(seed=seeds)
    def test_finite_and_the_same_twice(self, name, seed):
        rows = random_rows(np.random.default_rng(seed), states=3)
        first, second = estimate(name, batch_of(rows)), estimate(name, batch_of(rows))
        assert np.isfinite(first.advantages).all()
        assert first.advantages.tobytes() == second.advantages.tobytes()
        assert first.diagnostics == second.diagnostics

    @pytest.mark.parametrize(
        "rows",
        [
            episode(0, ["a", "b"], True),
            episode(0, ["a", "b"], False),
            episode(0, ["a", "a"], True) + episode(1, ["a", "a"], False),
            episode(0, ["a", "b", "c"], True) + episode(1, ["a", "c"], True),
            episode(0, ["a", "b", "c"], False) + episode(1, ["a", "c"], False),
            episode(0, ["a", "a", "a", "a"], False, invalid=(0, 1, 2)) + episode(1, ["a", "a", "b"], True),
            episode(0, ["\U0001f600", "\u202eא\x00", ""], True) + episode(1, ["\U0001f600", "", "ﬀ"], False),
            episode(0, ["x" * 100_000, "x" * 99_999 + "y", "x" * 100_000], True)
            + episode(1, ["x" * 100_000, "z"], False),
        ],
        ids=["one-step-win", "one-step-loss", "self-loops", "all-win", "all-lose", "invalid", "unicode", "long"],
    )
    def test_degenerate_batches_give_finite_numbers(self, name, rows):
        result = estimate(name, batch_of(rows))
        assert result.advantages.dtype == np.float64
        assert result.advantages.shape == (len(rows),)
        assert np.isfinite(result.advantages).all()
        assert all(np.isfinite(value) for value in result.diagnostics.values())

    def test_states_that_differ_in_the_last_of_many_characters_differ(self, name):
        start = "x" * 100_000
        rows = episode(0, [start, start + "1", "end"], True) + episode(1, [start, start + "2", "end"], False)
        short = episode(0, ["s", "s1", "end"], True) + episode(1, ["s", "s2", "end"], False)
        np.testing.assert_array_equal(advantages(name, rows), advantages(name, short))

    def test_the_batch_is_left_alone_and_reusable(self, name):
        batch = batch_of(random_rows(np.random.default_rng(5)))
        before = {column: batch.column(column).tolist() for column in batch.columns}
        first = estimate(name, batch).advantages
        for other in built_in():
            estimate(other, batch)
        np.testing.assert_array_equal(estimate(name, batch).advantages, first)
        assert {column: batch.column(column).tolist() for column in batch.columns} == before
