"""Stored rollouts: our own files, and JSON Lines or Parquet of other trainers by a column map (see
`analysis.foreign_records`) that is known, or written in YAML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from algorithms import RolloutBatch, RolloutError
from analysis.foreign_records import ColumnMap, Field, to_batch

FORMATS: dict[str, ColumnMap] = {
    "verl-agent": ColumnMap(
        {
            "group": "uid",
            "trajectory": "traj_uid",
            "step": "step_id|turn_idx",
            "state": "anchor_obs",
            "action": "action|text_action|response|responses|output",
            "valid": "is_action_valid",
            "reward": "rewards|reward",
            "success": "won|success",
            "score": "episode_rewards",
            "keep": "active_masks",
            "task": "data_source_index|task_id",
        },
        success_reward=10.0,
    ),
    "trl": ColumnMap(
        {"group": ["step", "prompt"], "messages": "completion", "prompt": "prompt", "score": "reward|rewards|score"},
        rows="trajectories",
    ),
}


def read_rollouts(
    path: str | Path, format: str | Path | None = None, columns: Mapping[str, Field] | None = None
) -> RolloutBatch:
    """Stored rollouts as a batch: our own Parquet files, or another trainer's records.

    format   None: our own file, or a known format by the fields of the first line; "verl-agent" or "trl"; or a YAML
             file with a column map
    columns  entries put over those of the format

    Raises `RolloutError` naming the file, the line and the field for what can't be used, OSError for a missing file.
    """
    path = Path(path)
    if format is None and columns is None and path.suffix == ".parquet" and _is_ours(path):
        return RolloutBatch.read_parquet(path)
    records = _read_records(path)
    mapping = _guess(path, records[0]) if format is None else column_map(format)
    try:
        return to_batch(records, mapping.with_columns(columns or {}))
    except RolloutError as error:
        raise RolloutError(f"{path}: {error}") from None


def column_map(format: str | Path) -> ColumnMap:
    """A known format by its name, or the column map in a YAML file. `RolloutError` where there is neither."""
    if str(format) in FORMATS:
        return FORMATS[str(format)]
    path = Path(format)
    if not path.is_file():
        raise RolloutError(f"{format!s} is neither a known format ({', '.join(FORMATS)}) nor a file with a column map")
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RolloutError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(given, dict) or not isinstance(given.get("columns"), dict):
        raise RolloutError(f"{path}: a column map has `columns`, a mapping of our columns to fields")
    unknown = sorted(set(given) - {"columns", "rows", "success_reward", "success_above"})
    if unknown:
        raise RolloutError(f"{path}: unknown key {unknown[0]!r}; valid: columns, rows, success_reward, success_above")
    try:
        return ColumnMap(**given)
    except RolloutError as error:
        raise RolloutError(f"{path}: {error}") from None


def _is_ours(path: Path) -> bool:
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        return b"creditbench" in (parquet.read_schema(path).metadata or {})
    except pyarrow.ArrowInvalid as error:
        raise RolloutError(f"{path}: not a Parquet file: {' '.join(str(error).split())}") from None


def _guess(path: Path, record: Mapping[str, Any]) -> ColumnMap:
    if "uid" in record and "traj_uid" in record:
        return FORMATS["verl-agent"]
    if "prompt" in record and "completion" in record:
        return FORMATS["trl"]
    raise RolloutError(
        f"{path}: not a known format; its fields are {', '.join(record)}. Name one ({', '.join(FORMATS)}) or give a "
        "YAML file with a column map"
    )


def _read_records(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        import pyarrow.parquet as parquet

        records = parquet.ParquetFile(path).read().to_pylist()
    else:
        records = list(_json_lines(path))
    if not records:
        raise RolloutError(f"{path}: no record in it")
    return records


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _json_object(path, number, line)
        except UnicodeDecodeError as error:
            raise RolloutError(f"{path}: not UTF-8 text ({error.reason}); rollouts are Parquet or JSON Lines") from None


def _json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise RolloutError(f"{path}, line {number}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RolloutError(f"{path}, line {number}: a record is a JSON object, not {type(value).__name__}")
    return value
