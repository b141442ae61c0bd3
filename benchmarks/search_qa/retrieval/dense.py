"""Dense retrieval: a faiss index (the extra `[dense]`) over vectors of an encoder, inner product as the score."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search_qa.retrieval.base import Hit
from benchmarks.search_qa.retrieval.corpus import Corpus
from benchmarks.search_qa.retrieval.encoders import Encoder

logger = logging.getLogger(__name__)
_FLAT_LIMIT = 200_000  # passages that are encoded on the spot; more need an index made before


class Dense:
    """An `Engine` over a corpus with one vector a passage.

    Args:
        corpus: the passages, in the order of the index.
        encoder: of the queries, and of the passages where there is no index.
        index: a faiss file made with the same encoder; None encodes the corpus now.
        mmap: leave the index on disk.

    ValueError, before anything large is loaded, when faiss is missing or the index does not fit into memory; and when
    its dimension or number of rows differ from the encoder's and the corpus's.
    """

    def __init__(self, corpus: Corpus, encoder: Encoder, index: Path | None = None, mmap: bool = False) -> None:
        self.corpus, self.encoder, self.path = corpus, encoder, index
        self._index = _encoded(corpus, encoder) if index is None else load_index(index, mmap)
        if self._index.d != encoder.dimension:
            raise ValueError(
                f"index {index} has dimension {self._index.d}, encoder {encoder.name!r} gives {encoder.dimension}; "
                "use the encoder that the index was made with"
            )
        if self._index.ntotal != len(corpus):
            raise ValueError(
                f"index {index} holds {self._index.ntotal} rows, corpus {corpus.name} {len(corpus)} passages; use the "
                "corpus that the index was made from"
            )
        self._fingerprint = self._hash()

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Engine`. An empty query has no hits."""
        asked = [query for query in queries if query.strip()]
        scores, rows = self._index.search(self.encoder(asked), k) if asked else ([], [])
        found = iter(zip(scores, rows, strict=True))
        return [self._hits(*next(found)) if query.strip() else [] for query in queries]

    def _hits(self, scores: np.ndarray, rows: np.ndarray) -> list[Hit]:
        """faiss fills up with row -1 where it found fewer than k."""
        pairs = [(int(row), float(score)) for row, score in zip(rows, scores, strict=True) if row >= 0]
        pairs.sort(key=lambda pair: (-pair[1], pair[0]))
        return [Hit(p.id, p.title, p.text, score) for p, score in ((self.corpus[row], score) for row, score in pairs)]

    def _hash(self) -> str:
        stat = self.path.stat() if self.path is not None else None
        parts = ("dense", self.encoder.name, self.corpus.hash, stat and stat.st_size)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    @property
    def fingerprint(self) -> str:
        """See `Engine`."""
        return self._fingerprint

    def record(self) -> dict[str, Any]:
        """See `Engine`."""
        corpus = {"corpus": self.corpus.name, "passages": len(self.corpus), "corpus_hash": self.corpus.hash}
        index = self.path.name if self.path is not None else "flat, encoded at the start"
        encoder = {"encoder": self.encoder.name, "dimension": self.encoder.dimension, "index": index}
        return {"engine": "dense", **corpus, **encoder, "fingerprint": self.fingerprint}

    def close(self) -> None:
        """Nothing to let go of."""

    def save(self, path: Path) -> None:
        """Write the index as a faiss file."""
        _faiss().write_index(self._index, str(path))


def check_memory(path: Path, mmap: bool) -> str:
    """One line that says what loading the index takes. ValueError when it is more than the memory that is free.

    A flat index takes its file's size: 4 bytes x dimension x passages; wiki-18 under E5 64.6 GB.
    """
    if not path.is_file():
        raise ValueError(f"index file {path} does not exist; set benchmark.options.index")
    needed, free = path.stat().st_size, free_memory()
    said = f"index {path}: {needed / 1e9:.1f} GB of memory ({free / 1e9:.1f} GB free)"
    if mmap:
        return f"{said}; mapped from disk, so that only what is read is loaded"
    if needed > free:
        raise ValueError(
            f"{said}: it does not fit. Map it from disk with index_mmap=true, use a smaller index (IVF4096,SQ8: about "
            "a quarter), or a machine that serves it (creditbench serve-retrieval) with retriever=http"
        )
    return said


def free_memory() -> int:
    """Bytes of memory that can be used now."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def load_index(path: Path, mmap: bool = False) -> Any:
    """A faiss index from its file; says first what it takes."""
    logger.warning("loading %s", check_memory(path, mmap))
    faiss = _faiss()
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP if mmap else 0)
    except RuntimeError as error:
        raise ValueError(f"index {path} is not a faiss index: {' '.join(str(error).split())[-120:]}") from None


def _encoded(corpus: Corpus, encoder: Encoder) -> Any:
    if len(corpus) > _FLAT_LIMIT:
        raise ValueError(
            f"corpus {corpus.name} has {len(corpus)} passages, too many to encode at the start; set "
            "benchmark.options.index to a faiss file"
        )
    logger.warning("encoding %d passages with %s", len(corpus), encoder.name)
    index = _faiss().IndexFlatIP(encoder.dimension)
    index.add(encoder([f"{passage.title}\n{passage.text}" for passage in corpus], role="passage"))
    return index


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise ValueError("retriever=dense needs faiss: pip install -e '.[dense]'") from None
    return faiss
