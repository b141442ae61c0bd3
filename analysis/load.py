"""Run folders as tidy pandas frames. Reads plain files only (config.yaml, attempts/, evaluations/, result.json)."""

from __future__ import annotations

import json
import os
import socket
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

RUN_COLUMNS = (
    "run", "path", "algorithm", "options", "seed", "benchmark", "label", "model", "protocol",
    "state", "reason", "commit", "attempts", "torn_lines",
)  # fmt: skip
METRIC_COLUMNS = ("run", "attempt", "update")
EVALUATION_COLUMNS = (
    "run", "evaluation", "list", "when", "list_hash", "count", "repeats", "temperature", "decoding", "label", "horizon",
)  # fmt: skip
EPISODE_COLUMNS = (
    "run", "evaluation", "list", "when", "task", "kind", "repeat", "success", "score", "steps",
    "format_invalid", "inadmissible",
)  # fmt: skip


class RunsError(ValueError):
    """A run folder that can't be read. The message is one line: which file, what is wrong."""


@dataclass(frozen=True)
class Runs:
    """A set of runs, one frame a kind of fact; `run` (the run's id) joins them.

    runs         one row a run: RUN_COLUMNS. `state` is done, failed, running, interrupted or new; `reason` says why a
                 run failed or what is unsure about its state ("" otherwise); `options` is canonical JSON; `label`
                 names the data ("" before the first evaluation); `commit` is the code of the newest attempt, followed
                 by "+" and the hash of the uncommitted changes where there were some ("" unknown)
    metrics      one row a run and update, of the newest attempt that reached it; columns as the trainer logged them
    evaluations  one row an evaluation (a task list at one moment of a run): EVALUATION_COLUMNS
    episodes     one row an evaluated episode: EPISODE_COLUMNS; `success` is bool, `steps` counts environment steps
    configs      the resolved config by run
    """

    runs: pd.DataFrame
    metrics: pd.DataFrame
    evaluations: pd.DataFrame
    episodes: pd.DataFrame
    configs: Mapping[str, Mapping[str, Any]]


def load_runs(paths: str | Path | Iterable[str | Path]) -> Runs:
    """Read every run folder at or below `paths`.

    A path is a run folder, a folder of run folders, or a folder that has those under `runs/`. RunsError when there is
    none, when a run appears under two paths, or when a file is broken (a torn last line of metrics is only counted).
    """
    roots = [paths] if isinstance(paths, str | Path) else list(paths)
    folders = [folder for root in roots for folder in _run_folders(Path(root))]
    by_id: dict[str, Path] = {}
    for folder in folders:
        first = by_id.setdefault(folder.name, folder)
        if first.resolve() != folder.resolve():
            raise RunsError(f"run {folder.name} is in two places: {first} and {folder}; give only one of them")
    return _collect([_read_run(folder) for folder in by_id.values()])


@dataclass(frozen=True)
class _Run:
    """The facts of one run folder, as plain rows."""

    record: dict[str, Any]
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    episodes: list[dict[str, Any]]


def _run_folders(root: Path) -> list[Path]:
    if _is_run(root):
        return [root.resolve()]
    for parent in (root, root / "runs"):
        found = sorted(child for child in parent.iterdir() if _is_run(child)) if parent.is_dir() else []
        if found:
            return found
    raise RunsError(f"no run in {root}: neither it nor a folder in it (or in its runs/) holds a config.yaml")


def _is_run(folder: Path) -> bool:
    return (folder / "config.yaml").is_file()


def _collect(runs: list[_Run]) -> Runs:
    return Runs(
        runs=_frame((run.record for run in runs), RUN_COLUMNS),
        metrics=_frame((row for run in runs for row in run.metrics), METRIC_COLUMNS),
        evaluations=_frame((row for run in runs for row in run.evaluations), EVALUATION_COLUMNS),
        episodes=_frame((row for run in runs for row in run.episodes), EPISODE_COLUMNS),
        configs={run.record["run"]: run.config for run in runs},
    )


def _frame(rows: Iterable[dict[str, Any]], first: tuple[str, ...]) -> pd.DataFrame:
    """Rows as a frame whose columns start with `first` and are there even without rows."""
    records = list(rows)
    if not records:
        return pd.DataFrame(columns=list(first), dtype=object)  # not float: names and numbers join other frames
    frame = pd.DataFrame.from_records(records)
    return frame.reindex(columns=[*first, *(name for name in frame.columns if name not in first)])


def _read_run(folder: Path) -> _Run:
    config = _read_config(folder / "config.yaml")
    attempts = _attempts(folder)
    metrics, torn = _merged_metrics(folder.name, attempts)
    evaluations, episodes = _read_evaluations(folder)
    state, reason = _state(folder, attempts)
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
    }
    return _Run(record, config, metrics, evaluations, episodes)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
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


def _merged_metrics(run: str, attempts: list[Path]) -> tuple[list[dict[str, Any]], int]:
    """One row an update, of the newest attempt that reached it, in order of updates; and the number of torn lines."""
    rows: dict[int, dict[str, Any]] = {}
    torn = 0
    for attempt in attempts:
        path = attempt / "metrics.jsonl"
        for row in _lines(path) if path.exists() else ():
            if row is None:
                torn += 1
                continue
            if not isinstance(row.get("update"), int):
                raise RunsError(f"{path}: a row without the number of its update")
            rows[row["update"]] = {"run": run, "attempt": int(attempt.name)} | row
    return [rows[update] for update in sorted(rows)], torn


# --- evaluations ----------------------------------------------------------------------------------------------------


def _read_evaluations(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    headers, episodes = [], []
    parent = folder / "evaluations"
    for path in sorted(parent.rglob("*.json")):
        name = path.relative_to(parent).with_suffix("").as_posix()
        header = _header(path) | {"run": folder.name, "evaluation": name}
        headers.append(header)
        place = {key: header[key] for key in ("run", "evaluation", "list", "when")}
        episodes += [place | row for row in _episode_rows(path.with_suffix(".jsonl"), header)]
    return headers, episodes


def _header(path: Path) -> dict[str, Any]:
    header = _object_or_none(path)
    if header is None:
        raise RunsError(f"{path}: not a JSON object; delete this evaluation and make it again")
    missing = [key for key in EVALUATION_COLUMNS if key not in header and key not in ("run", "evaluation")]
    if missing:
        raise RunsError(f"{path}: header lacks {', '.join(missing)}")
    return header


def _episode_rows(path: Path, header: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = list(_lines(path)) if path.exists() else []
    expected = header["count"] * header["repeats"]
    if len(rows) != expected or None in rows:
        whole = sum(row is not None for row in rows)
        raise RunsError(f"{path}: {whole} whole rows where the header says {expected}; delete it and evaluate again")
    wanted = EPISODE_COLUMNS[4:]
    for number, row in enumerate(rows, start=1):
        missing = [key for key in wanted if key not in (row or {})]
        if missing:
            raise RunsError(f"{path}:{number}: row lacks {', '.join(missing)}")
    return [{key: row[key] for key in wanted} | {"success": bool(row["success"])} for row in rows if row is not None]


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


def _lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """Objects of a JSON Lines file. An unreadable last line gives None (a process died while it wrote); an unreadable
    inner line is a RunsError."""
    lines = [(number, line) for number, line in enumerate(path.read_bytes().split(b"\n"), start=1) if line.strip()]
    for number, line in lines:
        try:
            yield _object(line)
        except ValueError as error:
            if number != lines[-1][0]:
                raise RunsError(f"{path}:{number}: broken line in the middle of the file: {error}") from error
            yield None
