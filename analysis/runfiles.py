"""One run folder as plain rows: config.yaml, attempts/, evaluations/, error.json and result.json."""

from __future__ import annotations

import io
import json
import os
import socket
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from pyarrow import json as arrow_json

RUN_COLUMNS = (
    "run", "path", "algorithm", "options", "seed", "benchmark", "label", "model", "protocol",
    "state", "reason", "commit", "attempts", "torn_lines", "seconds", "data",
)  # fmt: skip
METRIC_COLUMNS = ("run", "attempt", "update")
EVALUATION_COLUMNS = (
    "run", "evaluation", "list", "when", "list_hash", "count", "repeats", "temperature", "decoding", "label", "horizon",
)  # fmt: skip
EPISODE_COLUMNS = (
    "run", "evaluation", "list", "when", "task", "kind", "repeat", "success", "score", "steps",
    "format_invalid", "inadmissible",
)  # fmt: skip

_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where libyaml is there
_NOT_JSON = (b"NaN", b"Infinity")
_READ = arrow_json.ReadOptions(use_threads=False, block_size=1 << 24)  # files are small: threads cost more than they do


class RunsError(ValueError):
    """A run folder that can't be read. The message is one line: which file, what is wrong."""


@dataclass(frozen=True)
class RunFiles:
    """The facts of one run folder: rows of `runs`, of `evaluations`, and Arrow tables of metrics and episodes."""

    record: dict[str, Any]
    config: dict[str, Any]
    metrics: pa.Table
    evaluations: list[dict[str, Any]]
    episodes: list[pa.Table]


def is_run(folder: Path) -> bool:
    """A folder is a run where it holds a config.yaml."""
    return (folder / "config.yaml").is_file()


def read_run(folder: Path) -> RunFiles:
    """Read one run; RunsError when a file is broken (a torn last line of metrics is only counted)."""
    config = _read_config(folder / "config.yaml")
    attempts = _attempts(folder)
    metrics, torn = _merged_metrics(folder.name, attempts)
    evaluations, episodes = _read_evaluations(folder)
    state, reason = _state(folder, attempts)
    result = _object_or_none(folder / "result.json") or {}
    algorithm = config["algorithm"]
    record = {
        "run": folder.name,
        "path": str(folder),
        "algorithm": algorithm["name"],
        "options": json.dumps(algorithm.get("options") or {}, sort_keys=True),
        "seed": config["seed"],
        "benchmark": config["benchmark"]["name"],
        "label": evaluations[0]["label"] if evaluations else "",
        "model": config["model"]["name"],
        "protocol": config["protocol"]["name"],
        "state": state,
        "reason": reason,
        "commit": _commit(attempts),
        "attempts": len(attempts),
        "torn_lines": torn,
        "seconds": _number(result.get("seconds")),
        "data": json.dumps(result.get("data") or {}, sort_keys=True),
    }
    return RunFiles(record, config, metrics, evaluations, episodes)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = yaml.load(path.read_text(encoding="utf-8"), _YAML)
    except yaml.YAMLError as error:
        raise RunsError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    named = isinstance(config, dict) and all(
        isinstance(config.get(group), dict) and "name" in config[group]
        for group in ("algorithm", "benchmark", "model", "protocol")
    )
    if not named or "seed" not in config:
        raise RunsError(f"{path}: not a run's config: algorithm, benchmark, model, protocol (each named) and seed")
    return config


# --- attempts: state, code, metrics -------------------------------------------------------------------------------


def _attempts(folder: Path) -> list[Path]:
    """Folders of the attempts, oldest first."""
    parent = folder / "attempts"
    found = [child for child in parent.iterdir() if child.name.isdigit()] if parent.is_dir() else []
    return sorted(found, key=lambda path: int(path.name))


def run_state(folder: Path) -> tuple[str, str]:
    """(state, reason) of a run now; see `Runs.runs`."""
    return _state(folder, _attempts(folder))


def _state(folder: Path, attempts: list[Path]) -> tuple[str, str]:
    """State of a run and, of a failed one, the reason in one line. Files decide; a live process only tells running
    from interrupted."""
    if _object_or_none(folder / "result.json"):
        return "done", ""
    if (folder / "error.json").exists():
        return "failed", _failure(_object_or_none(folder / "error.json") or {})
    if not attempts:
        return "new", ""
    return _liveness(_environment(attempts))


def _failure(error: Mapping[str, Any]) -> str:
    message = " ".join(str(error.get("message") or "").split())
    message = textwrap.shorten(message, 160, placeholder=" ...")
    what = ": ".join(part for part in (str(error.get("class") or ""), message) if part) or "no reason recorded"
    update = error.get("update")
    return what if update is None else f"{what} (update {update})"


def _environment(attempts: list[Path]) -> dict[str, Any]:
    return (_object_or_none(attempts[-1] / "env.json") if attempts else None) or {}


def _liveness(environment: Mapping[str, Any]) -> tuple[str, str]:
    """running or interrupted, and what is unsure about it. Good enough to tell a reader why a value is missing; the
    run store, which decides who may go on with a run, also compares the start of the process."""
    pid = environment.get("pid")
    if "ended" in environment or not isinstance(pid, int):
        return "interrupted", ""
    if environment.get("host") != socket.gethostname():
        return "interrupted", "its process was on another host, so it may still run"
    return ("running" if _exists(pid) else "interrupted"), ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's process
    return True


def _commit(attempts: list[Path]) -> str:
    environment = _environment(attempts)
    commit, dirty = str(environment.get("commit") or ""), environment.get("dirty")
    return f"{commit}+{dirty}" if commit and dirty else commit


def _merged_metrics(run: str, attempts: list[Path]) -> tuple[pa.Table, int]:
    """One row an update, of the newest attempt that reached it, in order of updates; and the number of torn lines."""
    parts, torn = [], 0
    for attempt in attempts:
        path = attempt / "metrics.jsonl"
        rows, cut = _table(path) if path.exists() else (None, 0)
        torn += cut
        if rows is not None:
            parts.append(_of_run(rows, path, run, int(attempt.name)))
    return _newest(parts), torn


def _of_run(rows: pa.Table, path: Path, run: str, attempt: int) -> pa.Table:
    if "update" not in rows.column_names or not pa.types.is_integer(rows.schema.field("update").type):
        raise RunsError(f"{path}: a row without the number of its update")
    if rows["update"].null_count:
        raise RunsError(f"{path}: a row without the number of its update")
    place = {"run": pa.array([run] * len(rows)), "attempt": pa.array([attempt] * len(rows), pa.int64())}
    return pa.table({**place, **{name: rows[name] for name in rows.column_names}})


def _newest(parts: list[pa.Table]) -> pa.Table:
    """Of rows with one update the last; sorted by update."""
    if not parts:
        return pa.table({name: pa.array([], pa.string() if name == "run" else pa.int64()) for name in METRIC_COLUMNS})
    rows = pa.concat_tables(parts, promote_options="permissive")
    updates = rows["update"].to_pylist()
    newest = {update: place for place, update in enumerate(updates)}
    chosen = [newest[update] for update in sorted(newest)]
    return rows if chosen == list(range(len(updates))) else rows.take(chosen)


# --- evaluations ----------------------------------------------------------------------------------------------------


def _read_evaluations(folder: Path) -> tuple[list[dict[str, Any]], list[pa.Table]]:
    parent = folder / "evaluations"
    headers, files = [], []
    for path in sorted(parent.rglob("*.json")):
        name = path.relative_to(parent).with_suffix("").as_posix()
        headers.append(_header(path) | {"run": folder.name, "evaluation": name})
        files.append(path.with_suffix(".jsonl"))
    whole = _whole_episodes(files, headers) if files else None
    if whole is not None:
        return headers, [whole]
    return headers, [_episode_rows(path, header) for path, header in zip(files, headers, strict=True)]


def _whole_episodes(files: list[Path], headers: list[dict[str, Any]]) -> pa.Table | None:
    """All episodes of a run, read at once; None where a file isn't as its header says (one by one tells which)."""
    texts = [path.read_bytes() if path.exists() else b"" for path in files]
    counts = [header["count"] * header["repeats"] for header in headers]
    if [text.count(b"\n") for text in texts] != counts or not all(map(_clean, texts)):
        return None
    try:
        rows = arrow_json.read_json(io.BytesIO(b"".join(texts)), read_options=_READ)
    except pa.ArrowInvalid:
        return None
    absent = [key for key in EPISODE_COLUMNS[4:] if key not in rows.column_names or rows[key].null_count]
    return None if absent or len(rows) != sum(counts) else _placed(rows, headers, counts)


def _placed(rows: pa.Table, headers: list[dict[str, Any]], counts: list[int]) -> pa.Table:
    """Episodes with the columns that say which evaluation they are of."""
    place = {key: np.repeat(np.array([str(header[key]) for header in headers]), counts) for key in EPISODE_COLUMNS[:4]}
    columns = {name: rows[name] for name in rows.column_names if name not in place}
    columns["success"] = columns["success"].cast(pa.bool_())
    return pa.table({**{key: pa.array(values) for key, values in place.items()}, **columns})


def _header(path: Path) -> dict[str, Any]:
    header = _object_or_none(path)
    if header is None:
        raise RunsError(f"{path}: not a JSON object; delete this evaluation and make it again")
    missing = [key for key in EVALUATION_COLUMNS if key not in header and key not in ("run", "evaluation")]
    if missing:
        raise RunsError(f"{path}: header lacks {', '.join(missing)}")
    return header


def _episode_rows(path: Path, header: Mapping[str, Any]) -> pa.Table:
    rows, torn = _table(path) if path.exists() else (None, 0)
    expected, whole = header["count"] * header["repeats"], 0 if rows is None else len(rows)
    if whole != expected or torn or rows is None:
        raise RunsError(f"{path}: {whole} whole rows where the header says {expected}; delete it and evaluate again")
    _require_columns(path, rows)
    return _placed(rows, [dict(header)], [len(rows)])


def _require_columns(path: Path, rows: pa.Table) -> None:
    wanted = EPISODE_COLUMNS[4:]
    absent = [key for key in wanted if key not in rows.column_names]
    if absent:
        raise RunsError(f"{path}:1: row lacks {', '.join(absent)}")
    for key in wanted:
        if rows[key].null_count:
            line = rows[key].is_null().to_pylist().index(True) + 1
            raise RunsError(f"{path}:{line}: row lacks {key}")


# --- strict JSON ----------------------------------------------------------------------------------------------------


def _reject(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _object(text: str | bytes) -> dict[str, Any]:
    value = json.loads(text, parse_constant=_reject)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _object_or_none(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None when there is no file or it holds none (half written, empty)."""
    try:
        return _object(path.read_bytes())
    except (OSError, ValueError):
        return None


def _table(path: Path) -> tuple[pa.Table | None, int]:
    """(rows, torn) of a JSON Lines file: the whole objects as an Arrow table (None: there are none), and 1 if the
    last line is unreadable, because a process died while it wrote. An unreadable inner line is a RunsError."""
    data = path.read_bytes()
    if _clean(data):
        try:
            return arrow_json.read_json(io.BytesIO(data), read_options=_READ), 0
        except pa.ArrowInvalid:
            pass  # the careful way tells what is wrong, and where
    rows = list(_lines(path, data))
    whole = [row for row in rows if row is not None]
    try:
        return (pa.Table.from_pylist(_same_keys(whole)) if whole else None), len(rows) - len(whole)
    except pa.ArrowException as error:
        raise RunsError(f"{path}: {' '.join(str(error).split())}") from error


def _clean(data: bytes) -> bool:
    """Whole lines, and none of the words that are no JSON but that Arrow takes for numbers."""
    return data.endswith(b"\n") and not any(word in data for word in _NOT_JSON)


def _same_keys(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that all have every key (Arrow takes the columns from the first row)."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key) for key in keys} for row in rows]


def _lines(path: Path, data: bytes) -> Iterator[dict[str, Any] | None]:
    """Objects of JSON Lines; None for an unreadable last line."""
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    for number, line in lines:
        try:
            yield _object(line)
        except ValueError as error:
            if number != lines[-1][0]:
                raise RunsError(f"{path}:{number}: broken line in the middle of the file: {error}") from error
            yield None
