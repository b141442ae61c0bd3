"""What run folders hold, as frames, kept as Parquet between calls.

    <cache>/runs.parquet  metrics.parquet  evaluations.parquet  episodes.parquet

All four carry one random token; files of different tokens (two processes wrote at a time) count as no cache. A run is
read again when the names, sizes or times of its files are not those that were cached.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute
from pyarrow import parquet as pq

from analysis.runfiles import (
    EPISODE_COLUMNS,
    EVALUATION_COLUMNS,
    METRIC_COLUMNS,
    RUN_COLUMNS,
    RunFiles,
    read_run,
    run_state,
)

SCHEMA = b"1"
_NAMES = ("runs", "metrics", "evaluations", "episodes")
_KEYS = ("run", "attempt", "update", "evaluation", "list", "when")
_UNSETTLED = ("running", "interrupted")  # states that change without a file changing


@dataclass(frozen=True)
class Wanted:
    """The columns of metrics and of episodes that a caller needs besides those that say of what a row is; None: all.
    A column that no run has stays absent."""

    metrics: frozenset[str] | None = None
    episodes: frozenset[str] | None = None

    def of(self, name: str, known: Sequence[str]) -> list[str]:
        """Those of the `known` columns of table `name` that are wanted, in their order."""
        wanted = {"metrics": self.metrics, "episodes": self.episodes}.get(name)
        return [column for column in known if wanted is None or column in wanted or column in _KEYS]

    def __or__(self, other: Wanted) -> Wanted:
        """What either of two callers needs."""

        def either(one: frozenset[str] | None, two: frozenset[str] | None) -> frozenset[str] | None:
            return None if one is None or two is None else one | two

        return Wanted(either(self.metrics, other.metrics), either(self.episodes, other.episodes))


EVERYTHING = Wanted()


@dataclass(frozen=True)
class Frames:
    """The frames of `analysis.load.Runs`."""

    runs: pd.DataFrame
    metrics: pd.DataFrame
    evaluations: pd.DataFrame
    episodes: pd.DataFrame
    configs: dict[str, dict[str, Any]]


def read_frames(folders: Sequence[Path], cache: Path | None, wanted: Wanted = EVERYTHING) -> Frames:
    """The frames of these run folders with the wanted columns, from the cache where their files are unchanged."""
    prints = {folder.name: _fingerprint(folder) for folder in folders} if cache is not None else {}
    kept = _read_cache(cache, prints, wanted) if cache is not None else None
    known = set(kept["runs"]["run"].to_pylist()) if kept else set()
    fresh = [read_run(folder) for folder in folders if folder.name not in known]
    tables = _tables(fresh, prints)
    if kept:
        tables = {name: _joined([kept[name], tables[name]]) for name in _NAMES}
    if cache is not None and (fresh or kept is None):
        _write_cache(cache, tables)
    return _frames({name: table.select(wanted.of(name, table.column_names)) for name, table in tables.items()}, folders)


# --- rows -> Arrow tables -> frames -----------------------------------------------------------------------------------


def _tables(runs: Sequence[RunFiles], prints: Mapping[str, str]) -> dict[str, pa.Table]:
    facts = [
        run.record | {"config": json.dumps(run.config, default=str), "files": prints.get(run.record["run"], "")}
        for run in runs
    ]
    return {
        "runs": pa.Table.from_pylist(facts),
        "metrics": _joined([run.metrics for run in runs]),
        "evaluations": _joined([_rows(run.evaluations) for run in runs]),
        "episodes": _joined([part for run in runs for part in run.episodes]),
    }


def _rows(rows: list[dict[str, Any]]) -> pa.Table:
    """Headers as a table; what is not a plain value is kept as JSON."""
    plain = [
        {k: json.dumps(v, sort_keys=True) if isinstance(v, dict | list) else v for k, v in r.items()} for r in rows
    ]
    keys = dict.fromkeys(key for row in plain for key in row)
    return pa.Table.from_pylist([{key: row.get(key) for key in keys} for row in plain])


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    parts = [table for table in tables if table.num_columns]
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})


def _frames(tables: Mapping[str, pa.Table], folders: Sequence[Path]) -> Frames:
    order = {folder.name: place for place, folder in enumerate(folders)}
    runs = _frame(tables["runs"], (*RUN_COLUMNS, "config", "files"), order)
    configs = {run: json.loads(text) for run, text in zip(runs["run"], runs["config"], strict=True)}
    return Frames(
        runs=_current(runs.drop(columns=["config", "files"]), folders),
        metrics=_frame(tables["metrics"], METRIC_COLUMNS, order),
        evaluations=_frame(tables["evaluations"], EVALUATION_COLUMNS, order),
        episodes=_frame(tables["episodes"], EPISODE_COLUMNS, order),
        configs=configs,
    )


def _frame(table: pa.Table, first: tuple[str, ...], order: Mapping[str, int]) -> pd.DataFrame:
    """Rows as a frame whose columns start with `first` and are there even without rows; runs in the given order."""
    if not len(table):
        return pd.DataFrame(columns=list(first), dtype=object)  # not float: names and numbers join other frames
    frame = table.to_pandas()
    runs = compute.dictionary_encode(table["run"]).combine_chunks()
    place = np.array([order[run] for run in runs.dictionary.to_pylist()])[runs.indices.to_numpy()]
    if (np.diff(place) < 0).any():
        frame = frame.iloc[place.argsort(kind="stable")].reset_index(drop=True)
    return frame[[*(name for name in first if name in frame), *(name for name in frame if name not in first)]]


def _current(runs: pd.DataFrame, folders: Sequence[Path]) -> pd.DataFrame:
    """Paths as given now, and states as they are now: a process may have died without a file changing."""
    runs["path"] = [str(folder) for folder in folders]
    for row in runs.index[runs["state"].isin(_UNSETTLED)]:
        runs.loc[row, ["state", "reason"]] = run_state(Path(runs.loc[row, "path"]))
    return runs


# --- the files --------------------------------------------------------------------------------------------------------


def _fingerprint(folder: Path) -> str:
    """Names, sizes and times of the files that `read_run` reads."""
    seen = [_stamp(folder / name) for name in ("config.yaml", "error.json", "result.json")]
    for attempt in _children(folder / "attempts"):
        seen += [f"{attempt.name}:{_stamp(Path(attempt.path) / name)}" for name in ("env.json", "metrics.jsonl")]
    return "|".join([*seen, *_evaluation_stamps(folder / "evaluations")])


def _evaluation_stamps(folder: Path) -> Iterator[str]:
    for child in _children(folder):
        if child.name.endswith((".json", ".jsonl")):
            yield _entry(child)
        elif child.is_dir():
            yield f"{child.name}/"
            yield from _evaluation_stamps(Path(child.path))


def _children(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _entry(entry: os.DirEntry[str]) -> str:
    found = entry.stat()
    return f"{entry.name}:{found.st_size}:{found.st_mtime_ns}"


def _stamp(path: Path) -> str:
    try:
        found = path.stat()
    except FileNotFoundError:
        return "-"
    return f"{found.st_size}:{found.st_mtime_ns}"


def _read_cache(cache: Path, prints: Mapping[str, str], wanted: Wanted) -> dict[str, pa.Table] | None:
    """The cached rows of the runs whose files are unchanged; None without a usable cache. Columns that aren't wanted
    are left out where every run is cached (else the tables are written anew, and whole)."""
    try:
        runs = pq.read_table(cache / "runs.parquet")
        whole = set(_unchanged(runs, prints)) != set(prints)
        tables = {"runs": runs} | {
            name: _stored(cache / f"{name}.parquet", EVERYTHING if whole else wanted, name) for name in _NAMES[1:]
        }
    except (OSError, pa.ArrowException):
        return None
    tokens = {(table.schema.metadata or {}).get(b"creditbench") for table in tables.values()}
    if len(tokens) != 1 or not str(tokens.pop() or b"", "ascii", "replace").startswith(SCHEMA.decode() + " "):
        return None
    valid = _unchanged(runs, prints)
    if len(valid) == len(runs):
        return tables
    return {name: _only(table, valid) for name, table in tables.items()}


def _unchanged(runs: pa.Table, prints: Mapping[str, str]) -> list[str]:
    """Those of the cached runs whose files are as they were."""
    if not {"run", "files"} <= set(runs.column_names):
        return []
    facts = zip(runs["run"].to_pylist(), runs["files"].to_pylist(), strict=True)
    return [run for run, files in facts if prints.get(run) == files]


def _stored(path: Path, wanted: Wanted, name: str) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return file.read(columns=wanted.of(name, file.schema_arrow.names))


def _only(table: pa.Table, runs: list[str]) -> pa.Table:
    return table.filter(compute.is_in(table["run"], pa.array(runs, pa.string()))) if len(table) else table


def _write_cache(cache: Path, tables: Mapping[str, pa.Table]) -> None:
    """Each file whole or not at all; a folder that can't be written is done without."""
    token = SCHEMA + b" " + secrets.token_hex(16).encode()
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            _write(cache / f"{name}.parquet", table.replace_schema_metadata({b"creditbench": token}))


def _write(path: Path, table: pa.Table) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        pq.write_table(table, draft, compression="zstd", compression_level=1)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
