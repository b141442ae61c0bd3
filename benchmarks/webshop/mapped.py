"""Files of numbers that processes map into memory, each with a header that says whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

HEADER = 128
_STAMP, _COUNTS = slice(32, 96), slice(96, HEADER)


class ForeignFile(ValueError):
    """A file that does not belong here; the message names it and the way out."""


def header(magic: str, stamp: str, *counts: int) -> bytes:
    """The first bytes of a file: what it is, whose it is (64 characters), and up to four counts."""
    head = f"creditbench {magic}\n".encode().ljust(_STAMP.start) + stamp.encode().ljust(64)
    return (head + np.array(counts, dtype="<u8").tobytes()).ljust(HEADER, b"\0")


def counts(path: Path, magic: str, stamp: str) -> tuple[int, int, int, int]:
    """The counts in a file's header. ForeignFile for another kind of file, or one of another catalogue."""
    with path.open("rb") as file:
        head = file.read(HEADER)
    if len(head) < HEADER or not head.startswith(f"creditbench {magic}\n".encode()):
        raise ForeignFile(f"{path}: not of this version; build the catalogue again")
    if head[_STAMP].strip() != stamp.encode():
        raise ForeignFile(f"{path}: belongs to another catalogue; build the catalogue again")
    first, second, third, fourth = np.frombuffer(head[_COUNTS], dtype="<u8").tolist()
    return first, second, third, fourth


def check_size(path: Path, size: int) -> None:
    """ForeignFile unless so many bytes follow the header."""
    if path.stat().st_size != HEADER + size:
        raise ForeignFile(f"{path}: cut off; build the catalogue again")


def array(path: Path, kind: Any, offset: int, count: int) -> np.ndarray:
    """`count` numbers from `offset` bytes after the header on, mapped and only read."""
    if not count:
        return np.zeros(0, dtype=kind)
    return np.asarray(np.memmap(path, dtype=kind, mode="r", offset=HEADER + offset, shape=(count,)))
