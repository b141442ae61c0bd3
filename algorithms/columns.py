"""Typed columns: what callers pass (lists, numpy, pandas, pyarrow) becomes one checked numpy array."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import numpy as np


class RolloutError(ValueError):
    """A rollout batch that can't be used; the message names the column and, where there is one, the row."""


class Column(Enum):
    """What a column holds, and so how it is stored."""

    ID = "str or int"  # object array of str, or int64
    TEXT = "str"  # object array of str
    COUNT = "int"  # int64, never negative
    FLAG = "bool"  # bool
    NUMBER = "number"  # float64, finite


def read_column(name: str, kind: Column, values: Any) -> np.ndarray:
    """A fresh array [rows] of the column's storage type; `RolloutError` naming column and row where it can't be."""
    raw = _to_list_or_array(name, values)
    return _READERS[kind](name, raw)


def _to_list_or_array(name: str, values: Any) -> list[Any] | np.ndarray:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise RolloutError(f"column {name!r} must be a list or an array, not {type(values).__name__}")
    if isinstance(values, np.ndarray):
        array = values
    elif hasattr(values, "to_pylist"):  # pyarrow
        return list(values.to_pylist())
    elif hasattr(values, "to_numpy"):  # pandas
        array = np.asarray(values.to_numpy())
    else:
        return list(values)
    if array.ndim != 1:
        raise RolloutError(f"column {name!r} must have one dimension, not {array.ndim}")
    return array.tolist() if array.dtype == object else array


def _read_text(name: str, raw: list[Any] | np.ndarray) -> np.ndarray:
    items = raw.tolist() if isinstance(raw, np.ndarray) else raw
    _check_types(name, items, (str,), Column.TEXT)
    return _object_array(items)


def _read_id(name: str, raw: list[Any] | np.ndarray) -> np.ndarray:
    if isinstance(raw, np.ndarray) and raw.dtype.kind in "iu":
        return raw.astype(np.int64)
    items = raw.tolist() if isinstance(raw, np.ndarray) else raw
    if items and isinstance(items[0], (int, np.integer)):
        _check_types(name, items, (int, np.integer), Column.ID)
        return _int_array(name, items)
    _check_types(name, items, (str,), Column.ID)
    return _object_array(items)


def _read_count(name: str, raw: list[Any] | np.ndarray) -> np.ndarray:
    if isinstance(raw, np.ndarray) and raw.dtype.kind in "iu":
        array = raw.astype(np.int64)
    else:
        items = raw.tolist() if isinstance(raw, np.ndarray) else raw
        _check_types(name, items, (int, np.integer), Column.COUNT)
        array = _int_array(name, items)
    _check_rows(name, array, array >= 0, "is negative")
    return array


def _read_flag(name: str, raw: list[Any] | np.ndarray) -> np.ndarray:
    if isinstance(raw, np.ndarray) and raw.dtype == bool:
        return raw.copy()
    items = raw.tolist() if isinstance(raw, np.ndarray) else raw
    _check_types(name, items, (bool, np.bool_), Column.FLAG)
    return np.asarray(items, dtype=bool)


def _read_number(name: str, raw: list[Any] | np.ndarray) -> np.ndarray:
    if isinstance(raw, np.ndarray) and raw.dtype.kind in "iuf":
        array = raw.astype(np.float64)
    else:
        items = raw.tolist() if isinstance(raw, np.ndarray) else raw
        _check_types(name, items, (int, float, np.integer, np.floating), Column.NUMBER)
        array = np.asarray(items, dtype=np.float64)
    _check_rows(name, array, np.isfinite(array), "is not finite")
    return array


_READERS: dict[Column, Callable[[str, list[Any] | np.ndarray], np.ndarray]] = {
    Column.ID: _read_id,
    Column.TEXT: _read_text,
    Column.COUNT: _read_count,
    Column.FLAG: _read_flag,
    Column.NUMBER: _read_number,
}


def _object_array(items: list[Any]) -> np.ndarray:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _int_array(name: str, items: list[Any]) -> np.ndarray:
    try:
        return np.asarray(items, dtype=np.int64)
    except OverflowError:
        row = next(i for i, item in enumerate(items) if not -(2**63) <= item < 2**63)
        raise RolloutError(f"column {name!r}, row {row}: {items[row]} does not fit 64 bits") from None


def _check_types(name: str, items: list[Any], allowed: tuple[type, ...], kind: Column) -> None:
    # One pass over types in C; a bool is an int to Python, but not here unless flags are wanted.
    wrong = {t for t in set(map(type, items)) if not issubclass(t, allowed) or (t is bool and bool not in allowed)}
    if wrong:
        row = next(i for i, item in enumerate(items) if type(item) in wrong)
        raise RolloutError(
            f"column {name!r}, row {row}: expected {kind.value}, got {type(items[row]).__name__} ({items[row]!r:.40})"
        )


def _check_rows(name: str, array: np.ndarray, good: np.ndarray, problem: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        raise RolloutError(f"column {name!r}, row {row}: {array[row]} {problem}")
