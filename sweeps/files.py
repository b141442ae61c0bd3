"""Files that survive a crash: strict JSON, atomic replacement, JSON Lines with a torn end."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class StoreError(RuntimeError):
    """A run folder or a file in it that cannot be used; the message is one line with the path and the way out."""


def atomic_write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace `path` with `text`: a reader, or a machine that dies, sees the old file or the new one, never a part.

    Without `durable` the text is not forced to the disk: for many files at once, followed by one `os.sync`, or for
    what can be made again.
    """
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        fsync_folder(path.parent)


def atomic_write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Replace `path` with strict JSON; see `strict` for what becomes of NaN and of numpy scalars."""
    atomic_write_text(
        path, json.dumps(strict(value), indent=1, allow_nan=False, ensure_ascii=False) + "\n", durable=durable
    )


def fsync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable; nothing on systems that cannot."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def fsync_tree(folder: Path) -> None:
    """Make every file below a folder durable; call it before a checkpoint is renamed into place."""
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        elif path.is_dir():
            fsync_folder(path)
    fsync_folder(folder)


def strict(value: Any) -> Any:
    """The value in strict JSON's types: NaN and infinities become null, numpy scalars plain numbers, tuples lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    if hasattr(value, "tolist"):  # numpy and torch
        return strict(value.tolist())
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def json_line(row: Mapping[str, Any]) -> bytes:
    """One line of JSON Lines, with its line end."""
    return (json.dumps(strict(row), allow_nan=False, ensure_ascii=False) + "\n").encode()


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None when the file is absent, empty, cut short or holds anything else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def read_json_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """(rows, torn): the objects of a JSON Lines file, and 1 if its last line was cut short by a crash, else 0.

    An absent file has no rows. StoreError for a broken line that is not the last: no crash of its one writer makes it.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], 0
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    rows: list[dict[str, Any]] = []
    for number, line in numbered:
        row = _object(line)
        if row is not None:
            rows.append(row)
        elif number == numbered[-1][0]:
            return rows, 1
        else:
            raise StoreError(f"{path}: line {number} is not a JSON object; restore the file or delete that line")
    return rows, 0


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
