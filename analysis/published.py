"""The papers' own numbers (results/published/). They stand beside ours and never enter a mean of ours."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.load import RunsError

FILE = Path(__file__).resolve().parents[1] / "results" / "published" / "published.csv"
COLUMNS = ("paper", "table", "benchmark", "model", "method", "metric", "value", "std", "seeds", "note")


@dataclass(frozen=True)
class Number:
    """A printed value; `std` and `seeds` are None where the paper prints none; `note` says what is wrong with it."""

    value: float
    std: float | None
    seeds: int | None
    note: str


Key = tuple[str, str, str, str]  # benchmark, model, method, metric


def published(paper: str, table: str, path: Path | None = None) -> Mapping[Key, Number]:
    """The numbers of one table of a paper, by (benchmark, model, method, metric); empty for an unknown table.

    Raises RunsError when the file is absent or broken, with its line.
    """
    path = path or FILE
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except OSError as error:
        raise RunsError(f"{path}: {error.strerror}; published numbers come with the repository") from error
    found: dict[Key, Number] = {}
    for line, row in enumerate(rows, start=2):
        if tuple(row) != COLUMNS:
            raise RunsError(f"{path}:{line}: columns must be {', '.join(COLUMNS)}")
        if (row["paper"], row["table"]) != (paper, table):
            continue
        key = (row["benchmark"], row["model"], row["method"], row["metric"])
        if key in found:
            raise RunsError(f"{path}:{line}: a second value of {' '.join(key)}")
        found[key] = _number(row, f"{path}:{line}")
    return found


def _number(row: Mapping[str, str], place: str) -> Number:
    try:
        value, std = float(row["value"]), float(row["std"]) if row["std"] else None
        seeds = int(row["seeds"]) if row["seeds"] else None
    except (TypeError, ValueError) as error:
        raise RunsError(f"{place}: {error}") from error
    if not math.isfinite(value):
        raise RunsError(f"{place}: value {value} is not a number")
    return Number(value, std, seeds, row["note"] or "")
