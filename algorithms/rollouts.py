"""The one public data type: `RolloutBatch`, a columnar record of executed environment steps.

One row is one executed step. Columns (a row belongs to the trajectory named by the pair `group`, `trajectory`):

    group        str or int   the task prompt; G trajectories each; estimators never look across groups
    trajectory   str or int   unique within its group
    step         int          0-based place in the trajectory
    state        str          key of the state acted in
    action       str          the command sent
    next_state   str          key observed after the action
    valid        bool         was the action parsable and admissible
    reward       float        environment reward of the step
    success      bool         of the trajectory, the same on each of its rows

Optional columns, stored only when given: task, benchmark, prompt, completion, prompt_tokens, completion_tokens,
format_valid, admissible, truncated (the reply was cut at its limit), seconds.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.columns import Column, RolloutError, read_column
from algorithms.layout import Layout

__all__ = ["OPTIONAL_COLUMNS", "REQUIRED_COLUMNS", "SCHEMA_VERSION", "RolloutBatch", "RolloutError"]

SCHEMA_VERSION = 1
REQUIRED_COLUMNS: dict[str, Column] = {
    "group": Column.ID,
    "trajectory": Column.ID,
    "step": Column.COUNT,
    "state": Column.TEXT,
    "action": Column.TEXT,
    "next_state": Column.TEXT,
    "valid": Column.FLAG,
    "reward": Column.NUMBER,
    "success": Column.FLAG,
}
OPTIONAL_COLUMNS: dict[str, Column] = {
    "task": Column.ID,
    "benchmark": Column.TEXT,
    "prompt": Column.TEXT,
    "completion": Column.TEXT,
    "prompt_tokens": Column.COUNT,
    "completion_tokens": Column.COUNT,
    "format_valid": Column.FLAG,
    "admissible": Column.FLAG,
    "truncated": Column.FLAG,
    "seconds": Column.NUMBER,
}
_COLUMNS = REQUIRED_COLUMNS | OPTIONAL_COLUMNS
_METADATA_KEY = b"creditbench"


@dataclass(frozen=True, eq=False)
class RolloutBatch:
    """A validated, read-only batch of executed steps. Build it with `from_columns` or `read_parquet`.

    success_reward  what the environment pays for solving a task (10 on ALFWorld and WebShop, 1 on search-QA)
    layout          integer view of groups and trajectories, rows sorted by (group, trajectory, step)
    """

    success_reward: float
    layout: Layout
    _columns: Mapping[str, np.ndarray]
    _encodings: dict[Any, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_columns(cls, *, success_reward: float, **columns: Any) -> RolloutBatch:
        """Validate and store columns of equal length (lists, numpy arrays, pandas or pyarrow columns).

        Rows may come in any order. Raises `RolloutError` naming the column, and the row where there is one, for a
        missing or unknown column, lengths that differ, an empty batch, a wrong type, a non-finite number, a step gap
        or duplicate, a success that changes within a trajectory, and a group holding two task ids.
        """
        reward = _checked_success_reward(success_reward)
        _check_names(columns)
        arrays = {name: read_column(name, kind, columns[name]) for name, kind in _COLUMNS.items() if name in columns}
        _check_lengths(arrays)
        for array in arrays.values():
            array.flags.writeable = False
        return cls(reward, Layout.build(arrays), arrays)

    @property
    def rows(self) -> int:
        """Number of executed steps."""
        return self.layout.rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the stored columns, in the order of the schema."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return self.rows

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def column(self, name: str) -> np.ndarray:
        """Read-only array [rows] of one column, in input order. A column not stored is a `RolloutError`."""
        if name not in self._columns:
            raise RolloutError(f"column {name!r} is not in this batch; it holds {', '.join(self._columns)}")
        return self._columns[name]

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the batch to one Parquet file, atomically; `success_reward` and the schema version are in its
        metadata. Text that is not valid Unicode (a lone surrogate) is a `RolloutError`."""
        import pyarrow.parquet as parquet

        target = Path(path)
        table = self._to_table()
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            parquet.write_table(table, temporary, compression="zstd")
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def read_parquet(cls, path: str | os.PathLike[str]) -> RolloutBatch:
        """Read and validate a file of `write_parquet`. A file without this schema is a `RolloutError`."""
        import pyarrow.parquet as parquet

        table = parquet.ParquetFile(path).read()
        record = _read_metadata(path, table.schema.metadata or {})
        columns = {name: table.column(name) for name in table.column_names}
        return cls.from_columns(success_reward=record["success_reward"], **columns)

    def _to_table(self) -> Any:
        import pyarrow

        arrays = {name: _to_arrow(name, array) for name, array in self._columns.items()}
        record = {"schema_version": SCHEMA_VERSION, "success_reward": self.success_reward}
        metadata = {_METADATA_KEY: json.dumps(record, allow_nan=False).encode()}
        return pyarrow.table(arrays).replace_schema_metadata(metadata)


def _to_arrow(name: str, array: np.ndarray) -> Any:
    import pyarrow

    if array.dtype != object:
        return pyarrow.array(array)
    try:
        return pyarrow.array(array, type=pyarrow.large_string())
    except UnicodeEncodeError:
        row = next(i for i, text in enumerate(array) if not _is_unicode(text))
        raise RolloutError(f"column {name!r}, row {row}: a lone surrogate can't be stored as UTF-8") from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_metadata(path: str | os.PathLike[str], metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    if _METADATA_KEY not in metadata:
        raise RolloutError(f"{os.fspath(path)}: not a rollout file (no {_METADATA_KEY.decode()!r} in its metadata)")
    record: dict[str, Any] = json.loads(metadata[_METADATA_KEY])
    version = record["schema_version"]
    if version != SCHEMA_VERSION:
        raise RolloutError(f"{os.fspath(path)}: schema version {version}, this code reads version {SCHEMA_VERSION}")
    return record


def _checked_success_reward(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise RolloutError(f"success_reward must be a number, not {type(value).__name__}")
    if not (math.isfinite(value) and value > 0):
        raise RolloutError(f"success_reward must be finite and positive, not {value}")
    return float(value)


def _check_names(columns: Mapping[str, Any]) -> None:
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        raise RolloutError(f"column {missing[0]!r} is missing; a batch needs {', '.join(REQUIRED_COLUMNS)}")
    unknown = [name for name in columns if name not in _COLUMNS]
    if unknown:
        raise RolloutError(f"column {unknown[0]!r} is unknown; optional columns are {', '.join(OPTIONAL_COLUMNS)}")


def _check_lengths(arrays: Mapping[str, np.ndarray]) -> None:
    expected = len(arrays["group"])
    for name, array in arrays.items():
        if len(array) != expected:
            raise RolloutError(f"column {name!r} has {len(array)} rows, column 'group' has {expected}")
    if expected == 0:
        raise RolloutError("column 'group' has no rows: the batch is empty")
