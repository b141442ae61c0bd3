"""Passages: small corpora in memory, large ones read from their file by line."""

from __future__ import annotations

import gzip
import hashlib
import json
import mmap
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

_IN_MEMORY = 200_000_000  # bytes of text


@dataclass(frozen=True)
class Passage:
    """One passage; `id` is unique in its corpus."""

    id: str
    title: str
    text: str


class Corpus(Protocol):
    """An ordered collection of passages. `hash`: 16 hex digits over the content."""

    name: str
    hash: str

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Passage: ...

    def __iter__(self) -> Iterator[Passage]: ...


class MemoryCorpus:
    """Passages in a list. ValueError for none, or for an id that comes twice."""

    def __init__(self, name: str, passages: Iterable[Passage]) -> None:
        self.name, self._passages = name, tuple(passages)
        if not self._passages:
            raise ValueError(f"corpus {name} holds no passages")
        seen: set[str] = set()
        digest = hashlib.sha256()
        for passage in self._passages:
            if passage.id in seen:
                raise ValueError(f"corpus {name} holds passage {passage.id!r} twice")
            seen.add(passage.id)
            digest.update(json.dumps([passage.id, passage.title, passage.text]).encode())
        self.hash = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._passages)

    def __getitem__(self, row: int) -> Passage:
        return self._passages[row]

    def __iter__(self) -> Iterator[Passage]:
        return iter(self._passages)


class FileCorpus:
    """Passages of a large JSON Lines file, read where they are needed; memory: 8 bytes a passage.

    The hash is over the file's size and the bytes at 64 even places: hashing 14 GB would take minutes at each start.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self._stream = path.open("rb")
        self._bytes = mmap.mmap(self._stream.fileno(), 0, access=mmap.ACCESS_READ)
        self._starts = _line_starts(self._bytes)
        self.hash = self._sampled_hash()

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> Passage:
        start = int(self._starts[row])
        end = self._bytes.find(b"\n", start)
        line = self._bytes[start : len(self._bytes) if end < 0 else end]
        return _parsed(line, f"{self.path}, passage {row + 1}")

    def __iter__(self) -> Iterator[Passage]:
        return (self[row] for row in range(len(self)))

    def _sampled_hash(self) -> str:
        size = len(self._bytes)
        digest = hashlib.sha256(str(size).encode())
        for place in np.linspace(0, max(0, size - 65_536), 64).astype(np.int64).tolist():
            digest.update(self._bytes[place : place + 65_536])
        return digest.hexdigest()[:16]


def _line_starts(data: mmap.mmap) -> np.ndarray:
    """[lines] int64 offsets of the lines that hold more than a line end."""
    starts, chunk = [np.zeros(1, dtype=np.int64)], 1 << 26
    for offset in range(0, len(data), chunk):
        ends = np.flatnonzero(np.frombuffer(data[offset : offset + chunk], dtype=np.uint8) == 10)
        starts.append(ends.astype(np.int64) + offset + 1)
    begins = np.concatenate(starts)
    lengths = np.diff(np.append(begins, len(data) + 1)) - 1
    begins, lengths = begins[lengths > 0], lengths[lengths > 0]
    blank = [i for i in np.flatnonzero(lengths == 1) if data[int(begins[i])] == ord("\r")]
    return np.delete(begins, blank)


def read_passage(row: Any, where: str) -> Passage:
    """A passage from `{"id", "contents"}` (title in quotes, line end, text) or `{"id", "title", "text"}`.

    ValueError, naming `where`, for anything else.
    """
    if isinstance(row, dict) and isinstance(row.get("id"), (str, int)) and not isinstance(row["id"], bool):
        if isinstance(row.get("contents"), str):
            title, text = split_contents(row["contents"])
            return Passage(str(row["id"]), title, text)
        if isinstance(row.get("text"), str):
            return Passage(str(row["id"]), str(row.get("title") or ""), row["text"])
    raise ValueError(f"{where}: a passage needs an id and contents (or title and text)")


def split_contents(contents: str) -> tuple[str, str]:
    """(title, text) of wiki-18's form; without a line end all is text."""
    head, newline, text = contents.partition("\n")
    if not newline:
        return "", contents
    quoted = len(head) > 1 and head[0] == head[-1] == '"'
    return (head[1:-1] if quoted else head), text


def load_corpus(paths: Sequence[Path], name: str) -> Corpus:
    """The passages of JSON Lines files (`.gz` too), in order; one large plain file stays on disk.

    ValueError names the file and line of what is not a passage; FileNotFoundError a file that is not there.
    """
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"corpus file {path} does not exist")
    if len(paths) == 1 and paths[0].suffix != ".gz" and paths[0].stat().st_size > _IN_MEMORY:
        return FileCorpus(name, paths[0])
    return MemoryCorpus(name, (passage for path in paths for passage in _passages(path)))


def _passages(path: Path) -> Iterator[Passage]:
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield _parsed(line, f"{path}, line {number}")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is broken after line {number}: {error}") from None


def _parsed(line: bytes, where: str) -> Passage:
    try:
        row = json.loads(line)
    except ValueError:
        raise ValueError(f"{where}: not JSON") from None
    return read_passage(row, where)
