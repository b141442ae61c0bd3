"""Writes the postings of a stream of documents with bounded memory.

Documents leave runs of (term, document, count) on disk; when the term counts are known, every run is scattered into
its places in the final file. Memory holds the vocabulary and one run.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.webshop import analyzer
from benchmarks.webshop.index import K1, MAGIC, B, coded_length
from benchmarks.webshop.mapped import HEADER, header

RUN = 2_000_000  # postings
_POSTING = np.dtype([("term", np.int32), ("document", np.int32), ("count", np.float32)])


class PostingsWriter:
    """Takes texts in document order, then writes the file; temporary runs lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[str, int] = {}
        self._frequencies = array("i")
        self._lengths = array("i")
        self._terms, self._documents, self._counts = array("i"), array("i"), array("i")
        self._runs: list[Path] = []

    def add(self, text: str) -> None:
        """The next document."""
        found = analyzer.terms(text)
        document = len(self._lengths)
        self._lengths.append(len(found))
        for term, count in Counter(found).items():
            number = self._numbers.setdefault(term, len(self._numbers))
            if number == len(self._frequencies):
                self._frequencies.append(0)
            self._frequencies[number] += 1
            self._terms.append(number)
            self._documents.append(document)
            self._counts.append(count)
        if len(self._terms) >= RUN:
            self._flush()

    def _flush(self) -> None:
        """Write what has gathered as one run, ordered by term; documents stay in order within a term."""
        if not self._terms:
            return
        run = np.empty(len(self._terms), dtype=_POSTING)
        run["term"], run["document"], run["count"] = self._terms, self._documents, self._counts
        path = self._folder / f"run-{len(self._runs)}.npy"
        np.save(path, run[np.argsort(run["term"], kind="stable")])
        self._runs.append(path)
        self._terms, self._documents, self._counts = array("i"), array("i"), array("i")

    def entries(self) -> Iterator[tuple[str, int, int]]:
        """(term, first posting, number of postings) of every term."""
        first = 0
        for term, number in zip(self._numbers, self._frequencies, strict=True):
            yield term, first, number
            first += number

    def write(self, path: Path, stamp: str, by_asin: Iterable[int]) -> None:
        """The postings file of all documents; `by_asin` lists them in the order that breaks ties."""
        self._flush()
        documents, postings = len(self._lengths), int(sum(self._frequencies))
        filled = sum(length > 0 for length in self._lengths)
        with path.open("wb") as file:
            file.write(header(MAGIC, stamp, documents, postings, filled))
            file.write(_ranks(by_asin, documents).tobytes())
            file.truncate(HEADER + 4 * documents + 8 * postings)
        if postings:
            self._scatter(path, documents, postings, filled)
        for run in self._runs:
            run.unlink()

    def _scatter(self, path: Path, documents: int, postings: int, filled: int) -> None:
        places = np.cumsum(np.concatenate([[0], self._frequencies[:-1]]), dtype=np.int64)
        norms = self._norms(filled)
        start = HEADER + 4 * documents
        numbers = np.memmap(path, dtype=np.int32, mode="r+", offset=start, shape=(postings,))
        denominators = np.memmap(path, dtype=np.float32, mode="r+", offset=start + 4 * postings, shape=(postings,))
        for run_path in self._runs:
            run = np.load(run_path)
            terms, first, inverse, sizes = np.unique(
                run["term"], return_index=True, return_inverse=True, return_counts=True
            )
            at = places[run["term"]] + np.arange(len(run)) - first[inverse]
            numbers[at] = run["document"]
            denominators[at] = np.float32(1) + run["count"] * norms[run["document"]]
            places[terms] += sizes
        numbers.flush()
        denominators.flush()

    def _norms(self, filled: int) -> np.ndarray:
        """1 / (k1 (1 - b + b dl / avgdl)) of each document, in Lucene's float32 steps."""
        one, k1, b = np.float32(1), np.float32(K1), np.float32(B)
        average = np.float32(sum(self._lengths) / filled)
        lengths = np.fromiter(map(coded_length, self._lengths), dtype=np.float32, count=len(self._lengths))
        return one / (k1 * ((one - b) + b * lengths / average))


def _ranks(order: Iterable[int], count: int) -> np.ndarray:
    ranks = np.empty(count, dtype=np.int32)
    ranks[np.fromiter(order, dtype=np.int32, count=count)] = np.arange(count, dtype=np.int32)
    return ranks
