"""RolloutBatch: what it takes, what it refuses and how it says so, Parquet."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batches import batch_of, episode, shuffled
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_oracle import random_rows

from algorithms import RolloutBatch, RolloutError, estimate


def columns(**changes):
    """Two trajectories of two steps and one step, with some columns changed; None drops one."""
    base = {
        "group": ["g", "g", "g"],
        "trajectory": ["t", "t", "u"],
        "step": [0, 1, 0],
        "state": ["a", "b", "a"],
        "action": ["x", "y", "z"],
        "next_state": ["b", "c", "d"],
        "valid": [True, True, False],
        "reward": [0.0, 10.0, 0.0],
        "success": [True, True, False],
    }
    return {name: values for name, values in (base | changes).items() if values is not None}


def build(**changes):
    return RolloutBatch.from_columns(success_reward=10.0, **columns(**changes))


class TestReading:
    def test_columns_come_back_in_input_order(self):
        rows, _ = shuffled(random_rows(np.random.default_rng(0)), 1)
        batch = batch_of(rows)
        assert len(batch) == batch.rows == len(rows)
        for name in rows[0]:
            assert batch.column(name).tolist() == [row[name] for row in rows]

    @pytest.mark.parametrize(
        "convert",
        [
            lambda name, values: np.asarray(values),
            lambda name, values: tuple(values),
            lambda name, values: pd.Series(values),
            lambda name, values: pd.Series(values, dtype=object),
            lambda name, values: pd.Series(values).convert_dtypes(),
            lambda name, values: pd.Series(values, index=[5, 1, 3]),
            lambda name, values: pa.array(values),
            lambda name, values: pa.chunked_array([values[:1], values[1:]]),
            lambda name, values: np.asarray(values, dtype=np.float32) if name == "reward" else values,
            lambda name, values: np.asarray(values, dtype=np.int32) if name == "step" else values,
            lambda name, values: [int(value) for value in values] if name == "reward" else values,
        ],
        ids=["numpy", "tuple", "pandas", "object", "nullable", "index", "arrow", "chunked", "float32", "int32", "int"],
    )
    def test_every_kind_of_column_is_read_alike(self, convert):
        batch = RolloutBatch.from_columns(
            success_reward=10, **{name: convert(name, values) for name, values in columns().items()}
        )
        for name, values in columns().items():
            assert batch.column(name).tolist() == values
        assert batch.column("reward").dtype == np.float64
        assert batch.column("step").dtype == np.int64
        assert batch.column("valid").dtype == bool

    def test_ids_may_be_numbers_and_trajectories_need_names_only_within_their_group(self):
        rows = episode(0, ["a", "b"], True, group=7) + episode(0, ["a", "c"], False, group=8)
        assert batch_of(rows).layout.trajectories == 2
        named = episode("t", ["a", "b"], True, group="7") + episode("t", ["a", "c"], False, group="8")
        np.testing.assert_array_equal(
            estimate("graft", batch_of(rows)).advantages, estimate("graft", batch_of(named)).advantages
        )

    def test_optional_columns_are_stored_when_given(self):
        batch = build(task=["k", "k", "k"], prompt=["", "p", "q"], prompt_tokens=[0, 5, 6], seconds=[0.5, 1, 2])
        assert batch.column("prompt_tokens").tolist() == [0, 5, 6]
        assert "task" in batch
        assert "completion" not in batch
        with pytest.raises(RolloutError, match="'completion' is not in this batch"):
            batch.column("completion")

    @pytest.mark.parametrize("name", ["reward", "valid", "step", "group", "state"])
    def test_the_batch_owns_its_data(self, name):
        numbers = {"group": [3, 3, 3]} if name == "group" else {}
        given = np.asarray(columns(**numbers)[name], dtype=object if name == "state" else None)
        before = given.tolist()
        batch = build(**{name: given})
        given[:] = given[::-1].copy()
        given[0] = given[1]
        assert batch.column(name).tolist() == before
        with pytest.raises(ValueError, match="read-only"):
            batch.column(name)[0] = given[0]


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"state": None}, r"column 'state' is missing"),
            ({"observation": ["a", "b", "c"]}, r"column 'observation' is unknown; optional columns are task"),
            ({"state": ["a", "b"]}, r"column 'state' has 2 rows, column 'group' has 3"),
            ({"seconds": [1.0]}, r"column 'seconds' has 1 rows, column 'group' has 3"),
            ({name: [] for name in columns()}, r"column 'group' has no rows: the batch is empty"),
            ({"state": ["a", None, "c"]}, r"column 'state', row 1: expected str, got NoneType"),
            ({"state": ["a", 3, "c"]}, r"column 'state', row 1: expected str, got int \(3\)"),
            ({"action": "xyz"}, r"column 'action' must be a list or an array, not str"),
            ({"reward": 1.0}, r"column 'reward' must be a list or an array, not float"),
            ({"reward": np.zeros((3, 1))}, r"column 'reward' must have one dimension, not 2"),
            ({"reward": [0.0, np.nan, 0.0]}, r"column 'reward', row 1: nan is not finite"),
            ({"reward": np.array([0.0, 0.0, -np.inf])}, r"column 'reward', row 2: -inf is not finite"),
            ({"reward": ["0", 1.0, 2.0]}, r"column 'reward', row 0: expected number, got str"),
            ({"reward": [0.0, 1.0, True]}, r"column 'reward', row 2: expected number, got bool"),
            ({"valid": [True, 1, True]}, r"column 'valid', row 1: expected bool, got int"),
            ({"valid": pd.Series([True, None, True], dtype="boolean")}, r"column 'valid', row 1: expected bool"),
            ({"success": np.array([1, 1, 0])}, r"column 'success', row 0: expected bool, got int"),
            ({"step": [0.0, 1.0, 0.0]}, r"column 'step', row 0: expected int, got float"),
            ({"step": [0, True, 0]}, r"column 'step', row 1: expected int, got bool"),
            ({"step": [0, 1, -1]}, r"column 'step', row 2: -1 is negative"),
            ({"step": [0, 2**70, 0]}, r"column 'step', row 1: \d+ does not fit 64 bits"),
            ({"step": [0, 2, 0]}, r"column 'step', row 1: step 1 is missing, found 2 in trajectory 't' of group 'g'"),
            ({"step": [1, 2, 0]}, r"column 'step', row 0: step 0 is missing, found 1"),
            ({"step": [0, 0, 0]}, r"column 'step', row 1: step 0 appears twice in trajectory 't' of group 'g'"),
            ({"step": [0, 1, 1]}, r"column 'step', row 2: step 0 is missing, found 1 in trajectory 'u'"),
            ({"success": [True, False, False]}, r"column 'success', row 1: False but row 0 of the same trajectory 't'"),
            ({"task": ["k1", "k1", "k2"]}, r"column 'task', row 2: group 'g' holds two tasks, 'k1' \(row 0\) and 'k2'"),
            ({"task": [4, 4, 5]}, r"column 'task', row 2: group 'g' holds two tasks, 4 \(row 0\) and 5"),
            ({"group": ["g", 1, "g"]}, r"column 'group', row 1: expected str or int, got int"),
            ({"group": [1.0, 1.0, 1.0]}, r"column 'group', row 0: expected str or int, got float"),
            ({"trajectory": [1, "t", 2]}, r"column 'trajectory', row 1: expected str or int, got str"),
            ({"prompt_tokens": [1, -1, 2]}, r"column 'prompt_tokens', row 1: -1 is negative"),
        ],
        ids=lambda value: value[:50] if isinstance(value, str) else "",
    )
    def test_one_clear_error(self, changes, message):
        with pytest.raises(RolloutError, match=message) as caught:
            build(**changes)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "10", None])
    def test_success_reward_is_a_positive_number(self, value):
        with pytest.raises(RolloutError, match="success_reward must be"):
            RolloutBatch.from_columns(success_reward=value, **columns())

    def test_tasks_are_compared_within_groups_whatever_the_order_of_rows(self):
        rows = [dict(row, task="k") for row in episode(0, ["a", "b"], True)]
        rows += [dict(row, task="l") for row in episode(0, ["a", "b"], True, group="h")]
        assert len(batch_of(rows[::-1])) == 2
        rows += [dict(row, task="k") for row in episode(1, ["a", "b"], True, group="h")]
        with pytest.raises(RolloutError, match=r"row 2: group 'h' holds two tasks, 'l' \(row 1\) and 'k'"):
            batch_of(rows)


texts = st.text(max_size=20)


class TestParquet:
    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(states=st.lists(texts, min_size=3, max_size=3), name=texts, reward=st.floats(-1e300, 1e300))
    def test_round_trip_of_any_text(self, tmp_path_factory, states, name, reward):
        path = tmp_path_factory.mktemp("parquet") / "rollouts" / "000001.parquet"
        batch = build(state=states, group=[name] * 3, reward=[reward, 0.1, 0.2], task=[7] * 3, completion=states)
        batch.write_parquet(path)
        back = RolloutBatch.read_parquet(path)
        assert back.columns == batch.columns
        assert back.success_reward == 10.0
        for column in batch.columns:
            assert back.column(column).tolist() == batch.column(column).tolist()
            assert back.column(column).dtype == batch.column(column).dtype

    def test_success_reward_and_version_are_in_the_metadata(self, tmp_path):
        path = tmp_path / "a.parquet"
        RolloutBatch.from_columns(success_reward=1.0, **columns()).write_parquet(path)
        assert json.loads(pq.read_schema(path).metadata[b"creditbench"]) == {"schema_version": 1, "success_reward": 1.0}
        assert RolloutBatch.read_parquet(path).success_reward == 1.0

    def test_writing_replaces_the_file_and_leaves_nothing_else(self, tmp_path):
        path = tmp_path / "a.parquet"
        path.write_text("old")
        build().write_parquet(path)
        assert len(RolloutBatch.read_parquet(path)) == 3
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.parquet"]

    def test_a_failed_write_keeps_the_old_file_and_names_the_row(self, tmp_path):
        path = tmp_path / "a.parquet"
        build().write_parquet(path)
        before = path.read_bytes()
        with pytest.raises(RolloutError, match=r"column 'state', row 1: a lone surrogate"):
            build(state=["a", "\ud800", "c"]).write_parquet(path)
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.parquet"]

    def test_an_interrupted_write_keeps_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "a.parquet"
        build().write_parquet(path)
        before = path.read_bytes()

        def interrupted(table, target, **options):
            target.write_bytes(b"half")
            raise KeyboardInterrupt

        monkeypatch.setattr(pq, "write_table", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(state=["x", "y", "z"]).write_parquet(path)
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.parquet"]

    def test_other_files_are_refused(self, tmp_path):
        path = tmp_path / "other.parquet"
        pq.write_table(pa.table({"group": ["g"]}), path)
        with pytest.raises(RolloutError, match=r"other\.parquet: not a rollout file"):
            RolloutBatch.read_parquet(path)

    def test_a_later_schema_is_refused(self, tmp_path):
        path = tmp_path / "later.parquet"
        record = json.dumps({"schema_version": 2, "success_reward": 1.0})
        pq.write_table(pa.table(columns()).replace_schema_metadata({"creditbench": record}), path)
        with pytest.raises(RolloutError, match="schema version 2, this code reads version 1"):
            RolloutBatch.read_parquet(path)


def test_importing_the_package_brings_neither_torch_nor_pandas():
    code = "import sys, algorithms; print([m for m in ('torch', 'pandas', 'pyarrow', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
