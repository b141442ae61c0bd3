"""Run folders: the only record of what ran.

    <root>/<id>/config.yaml          the resolved configuration, written before the run
                attempts/0001/       env.json, metrics.jsonl, out.log, rollouts/
                ckpt/                checkpoints of the trainer
                evaluations/         <name>.json (header) and <name>.jsonl (one row an episode)
                error.json           the newest attempt failed
                result.json          written last: the run is done

One process writes a folder at a time: the one that holds the newest attempt. Everything else only reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from sweeps import environment
from sweeps.config import identity
from sweeps.files import (
    StoreError,
    atomic_write_json,
    atomic_write_text,
    fsync_folder,
    json_line,
    read_json,
    read_json_lines,
    strict,
)

__all__ = ["Attempt", "RunFolder", "StoreError", "adopt_output"]

SCHEMA = 1
_YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML has its C part
_YamlDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")

_pending_output: Path | None = None


def adopt_output(log: Path) -> None:
    """Say that this process's output already goes to `log`; the next attempt it starts takes it as its out.log."""
    global _pending_output
    _pending_output = log


class RunFolder:
    """One run on disk. Make it with `create` or `open`; `path` is its folder and `id` the hash of its science."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name

    @classmethod
    def create(cls, root: Path, config: Mapping[str, Any], *, durable: bool = True) -> RunFolder:
        """The folder of this configuration below `root`, made if it is not there.

        In a run that is neither done nor live, other `resources` replace the recorded ones: they change how it goes
        on, not what it is. StoreError when the folder holds another configuration. `durable` is that of
        `files.atomic_write_text`.
        """
        run = cls(Path(root) / identity(config))
        if not run._config_path.exists():
            run.path.mkdir(parents=True, exist_ok=True)
            run._write_config(config, durable)
            return run
        recorded = run.config()
        if identity(recorded) != run.id:
            raise StoreError(f"{run._config_path} was changed by hand: it is no longer run {run.id}; delete {run.path}")
        if recorded["resources"] != config["resources"] and run.state() not in ("done", "running"):
            run._write_config(config, durable)
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The run in an existing folder; StoreError when there is none."""
        path = Path(path)
        if not path.is_dir():
            raise StoreError(f"{path} is not a run: no such folder")
        if not (path / "config.yaml").is_file():
            raise StoreError(f"{path} is not a run: no config.yaml in it (runs are the folders below runs/)")
        return cls(path.resolve())

    @property
    def checkpoints(self) -> Path:
        """Folder of the trainer's checkpoints; made by the trainer."""
        return self.path / "ckpt"

    @property
    def _config_path(self) -> Path:
        return self.path / "config.yaml"

    def config(self) -> dict[str, Any]:
        """The resolved configuration as recorded."""
        try:
            value = yaml.load(self._config_path.read_text(encoding="utf-8"), Loader=_YamlLoader)
        except (OSError, yaml.YAMLError) as error:
            raise StoreError(f"{self._config_path} cannot be read: {str(error).splitlines()[0]}") from None
        if not isinstance(value, dict):
            raise StoreError(f"{self._config_path} holds no configuration; delete {self.path}")
        return value

    def _write_config(self, config: Mapping[str, Any], durable: bool) -> None:
        text = yaml.dump(strict(config), Dumper=_YamlDumper, sort_keys=False, allow_unicode=True)
        atomic_write_text(self._config_path, text, durable=durable)

    # --- state and attempts

    def state(self) -> str:
        """done, failed, running (a live attempt on this host), interrupted (attempts, none of them live) or new."""
        return self._state(self.attempts())

    def _state(self, attempts: list[Path]) -> str:
        if self.result() is not None:
            return "done"
        if (self.path / "error.json").exists():
            return "failed"
        if not attempts:
            return "new"
        return "interrupted" if _live_process(attempts[-1]) is None else "running"

    def attempts(self) -> list[Path]:
        """Folders of the attempts, oldest first."""
        parent = self.path / "attempts"
        found = parent.iterdir() if parent.is_dir() else iter(())
        return sorted((path for path in found if path.name.isdigit()), key=lambda path: int(path.name))

    def holder(self) -> int | None:
        """Process id of the live attempt on this host, None when there is none."""
        attempts = self.attempts()
        return _live_process(attempts[-1]) if attempts else None

    def start_attempt(self) -> Attempt:
        """Claim the run for this process. StoreError when it is done or a live attempt holds it.

        The claim is one rename of a folder that already says who claims, so of two processes exactly one gets it.
        An attempt on another host cannot be asked whether it lives; it counts as ended.
        """
        parent = self.path / "attempts"
        parent.mkdir(exist_ok=True)
        draft = parent / f".claim.{os.getpid()}.{time.monotonic_ns()}.tmp"
        draft.mkdir()
        try:
            record = environment.describe()
            atomic_write_json(draft / "env.json", record)
            path = self._claim(draft)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        self._archive_error(path)
        return Attempt(path, record)

    def _claim(self, draft: Path) -> Path:
        while True:
            attempts = self.attempts()
            self._refuse_if_taken(attempts)
            number = int(attempts[-1].name) + 1 if attempts else 1
            path = draft.with_name(f"{number:04d}")
            try:
                draft.rename(path)  # fails where the folder is there: it is never empty
            except OSError:
                if not path.exists():
                    raise
                continue
            fsync_folder(path.parent)
            return path

    def _refuse_if_taken(self, attempts: list[Path]) -> None:
        state = self._state(attempts)
        if state == "done":
            raise StoreError(f"run {self.id} is done; delete {self.path} to run it again")
        holder = _live_process(attempts[-1]) if attempts else None
        if holder is not None:
            raise StoreError(f"run {self.id} is running already (process {holder}); wait for it or stop it")

    def archive_error(self) -> None:
        """Move a failure's record to the attempt that it is about: the run is to go on."""
        error = self.path / "error.json"
        if not error.exists():
            return
        attempts = self.attempts()
        if attempts:
            self._archive_error(attempts[-1])
        else:
            error.unlink()

    def _archive_error(self, newest: Path) -> None:
        error = self.path / "error.json"
        if not error.exists():
            return
        number = (read_json(error) or {}).get("attempt")
        folder = newest.with_name(f"{number:04d}") if isinstance(number, int) else newest
        error.replace((folder if folder.is_dir() else newest) / "error.json")

    # --- records

    def world(self, fingerprint: str) -> str:
        """The fingerprint of what the run's tasks are answered from, as the first caller gave it."""
        path = self.path / "world.json"
        record = read_json(path)
        if record is None:
            record = {"fingerprint": fingerprint}
            atomic_write_json(path, record)
        return str(record["fingerprint"])

    def metrics(self) -> list[dict[str, Any]]:
        """Training metrics of all attempts, one row an update: of the newest attempt that reached it."""
        return self._merged()[0]

    def torn_lines(self) -> int:
        """Number of metrics lines cut short by a crash, one an attempt at most; `metrics` leaves them out."""
        return self._merged()[1]

    def _merged(self) -> tuple[list[dict[str, Any]], int]:
        merged: dict[int, dict[str, Any]] = {}
        torn = 0
        for attempt in self.attempts():
            rows, cut = read_json_lines(attempt / "metrics.jsonl")
            torn += cut
            merged.update({row["update"]: row for row in rows})
        return [merged[update] for update in sorted(merged)], torn

    def write_evaluation(self, name: str, header: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
        """Record an evaluation: `rows` holds one episode each, `header` what they are episodes of.

        `name` may have parts: `training_games/after`. The header is written last; without it there is no evaluation.
        """
        if not _NAME.fullmatch(name):
            raise StoreError(f"evaluation name {name!r}: use letters, digits, '.', '_', '-', in parts separated by '/'")
        stem = self.path / "evaluations" / name
        head = stem.with_name(f"{stem.name}.json")
        head.parent.mkdir(parents=True, exist_ok=True)
        head.unlink(missing_ok=True)
        atomic_write_text(stem.with_name(f"{stem.name}.jsonl"), b"".join(map(json_line, rows)).decode())
        atomic_write_json(head, header)

    def evaluations(self) -> dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]:
        """(header, rows) of every evaluation by name, sorted by name."""
        folder = self.path / "evaluations"
        found = {}
        for head in sorted(folder.rglob("*.json")):
            header = read_json(head)
            rows, torn = read_json_lines(head.with_name(f"{head.stem}.jsonl"))
            if header is None or torn:
                raise StoreError(f"{head} or its rows are damaged; delete them and evaluate again")
            found[head.relative_to(folder).as_posix().removesuffix(".json")] = (header, rows)
        return found

    def write_result(self, record: Mapping[str, Any]) -> None:
        """Mark the run done: the last file of a run. Adds the schema version and a check of the metrics."""
        rows = self.metrics()
        check = {"schema": SCHEMA, "metrics_rows": len(rows), "metrics_sha256": _sha256(rows)}
        (self.path / "error.json").unlink(missing_ok=True)
        atomic_write_json(self.path / "result.json", {**record, **check})

    def result(self) -> dict[str, Any] | None:
        """The result of a run that is done, else None; an empty or damaged file is no result."""
        return read_json(self.path / "result.json")

    def metrics_match_result(self) -> bool:
        """Whether the metrics are those that the result was written for; False without a result."""
        rows, result = self.metrics(), self.result() or {}
        return result.get("metrics_rows") == len(rows) and result.get("metrics_sha256") == _sha256(rows)

    def write_error(self, error: BaseException, update: int | None) -> None:
        """Record why the newest attempt failed, at which update (None: before or after training)."""
        attempts = self.attempts()
        record = {
            "schema": SCHEMA,
            "class": type(error).__name__,
            "message": str(error),
            "traceback": "".join(traceback.format_exception(error)),
            "attempt": int(attempts[-1].name) if attempts else None,
            "update": update,
            "time": time.time(),
        }
        atomic_write_json(self.path / "error.json", record)

    def error(self) -> dict[str, Any] | None:
        """The record of the failure of a run that failed, else None."""
        return read_json(self.path / "error.json")


class Attempt:
    """One process's go at a run. `path` is its folder, `number` counts from 1; close it when the process goes on."""

    def __init__(self, path: Path, record: Mapping[str, Any]) -> None:
        self.path = path
        self.number = int(path.name)
        self._record = dict(record)
        self._metrics = os.open(path / "metrics.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._closed = False
        _take_pending_output(path)

    @property
    def rollouts(self) -> Path:
        """Folder of this attempt's rollouts, made on first use."""
        folder = self.path / "rollouts"
        folder.mkdir(exist_ok=True)
        return folder

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one update's metrics; `row["update"]` is its number. NaN and infinities become null.

        One write of the whole line, so a crash can only cut the last line short.
        """
        if not isinstance(row.get("update"), int):
            raise StoreError(f"a row of metrics needs the number of its update, got {row.get('update')!r}")
        line = json_line(row)
        if os.write(self._metrics, line) != len(line):
            raise StoreError(f"{self.path / 'metrics.jsonl'}: a line was cut short; is the disk full?")

    def close(self) -> None:
        """Release the run: the attempt no longer counts as live. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        os.fsync(self._metrics)
        os.close(self._metrics)
        atomic_write_json(self.path / "env.json", {**self._record, "ended": time.time()})

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _live_process(attempt: Path) -> int | None:
    record = read_json(attempt / "env.json") or {}
    return record["pid"] if "ended" not in record and environment.is_live(record) else None


def _take_pending_output(attempt: Path) -> None:
    global _pending_output
    log, _pending_output = _pending_output, None
    if log is not None and log.exists():
        log.replace(attempt / "out.log")  # the open file keeps its writer


def _sha256(rows: list[dict[str, Any]]) -> str:
    record = json.dumps(rows, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(record.encode()).hexdigest()
