"""Strict JSON, atomic files, torn lines."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from sweeps.files import StoreError, atomic_write_json, atomic_write_text, json_line, read_json, read_json_lines, strict


def test_strict_makes_plain_json():
    value = {
        "a": math.nan,
        "b": [math.inf, 1.5],
        "c": np.float32(0.5),
        "d": np.arange(3),
        4: Path("x"),
        "e": (True, None),
    }
    assert strict(value) == {"a": None, "b": [None, 1.5], "c": 0.5, "d": [0, 1, 2], "4": "x", "e": [True, None]}
    assert strict(np.float64("nan")) is None
    with pytest.raises(TypeError, match="set"):
        strict({"a": {1}})


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "a.json"
    atomic_write_json(path, {"x": "ü"})
    with pytest.raises(UnicodeEncodeError):
        atomic_write_text(path, "\ud800")
    assert read_json(path) == {"x": "ü"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", '{"a": 1'])
def test_half_a_record_is_no_record(tmp_path, content):
    path = tmp_path / "result.json"
    path.write_text(content)
    assert read_json(path) is None
    assert read_json(tmp_path / "absent.json") is None


def test_lines_cut_anywhere_lose_the_last_row_only(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"update": i, "text": "a}\u2028{"} for i in range(3)]
    whole = b"".join(map(json_line, rows))
    before_last = len(whole) - len(json_line(rows[-1]))
    for cut in range(before_last + 1, len(whole)):
        path.write_bytes(whole[:cut])
        complete = cut == len(whole) - 1  # only the line end is missing
        assert read_json_lines(path) == (rows if complete else rows[:2], 0 if complete else 1)
    path.write_bytes(whole)
    assert read_json_lines(path) == (rows, 0)
    assert read_json_lines(tmp_path / "absent.jsonl") == ([], 0)


@pytest.mark.parametrize("broken", [b'{"update": 1, "re{"update": 2}\n', b"[1]\n", b"\x00\x00\n"])
def test_a_broken_inner_line_is_an_error(tmp_path, broken):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"update": 0}\n' + broken + b'{"update": 3}\n')
    with pytest.raises(StoreError, match=r"metrics.jsonl: line 2 is not"):
        read_json_lines(path)


def test_a_line_is_one_line(tmp_path):
    line = json_line({"update": 1, "x": math.nan, "text": "a\nb"})
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"update": 1, "x": None, "text": "a\nb"}
