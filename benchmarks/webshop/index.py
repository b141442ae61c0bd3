"""BM25 as Lucene computes it, over memory-mapped postings.

For a term in n of N documents, idf = ln(1 + (N - n + 0.5) / (n + 0.5)); a document with the term tf times scores
w - w / (1 + tf / (k1 (1 - b + b dl / avgdl))) with w = idf times the term's count in the query, all in float32, and
the terms of a query add up in double precision. dl is the length after Lucene's one-byte code. k1 0.9 and b 0.4 are
Anserini's; equal scores are ordered by ASIN.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.webshop import analyzer, mapped

K1 = 0.9
B = 0.4
MAGIC = "postings 1"
_BLOCK = 1 << 15  # entries handled at a time: temporary memory stays small at any size
MOST_CLAUSES = 1024  # distinct terms; more make Lucene refuse the query

Entry = tuple[int, int]  # first posting, number of postings
Lookup = Callable[[str], Entry | None]


class TooManyTerms(ValueError):
    """A query that Lucene refuses."""


def coded_length(length: int) -> int:
    """A document length after Lucene's SmallFloat byte code: exact below 40, then four significant bits."""
    if length < 40:
        return length
    shift = (length - 24).bit_length() - 4
    return (((length - 24) >> shift) << shift) + 24


class Index:
    """Search over the postings of one catalogue; documents are positions in it.

    The file holds a header (N, P, documents with any term), then int32 `rank` [N] (place in the order of ASINs), int32
    `documents` [P] and float32
    `denominators` [P] (1 + tf / (k1 (1 - b + b dl / avgdl)) of each posting); `lookup` finds a term's postings.
    """

    def __init__(self, path: Path, stamp: str, lookup: Lookup) -> None:
        self.documents, postings, self._filled, _ = mapped.counts(path, MAGIC, stamp)
        mapped.check_size(path, 4 * self.documents + 8 * postings)
        self._rank = mapped.array(path, np.int32, 0, self.documents)
        self._docs = mapped.array(path, np.int32, 4 * self.documents, postings)
        self._denominators = mapped.array(path, np.float32, 4 * (self.documents + postings), postings)
        self._lookup = functools.lru_cache(maxsize=20_000)(lookup)
        self._totals = np.zeros(self.documents)
        self._lock = threading.Lock()

    def search(self, query: str, most: int) -> list[tuple[int, float]]:
        """(position, score) of the best documents, at most `most`, best first. TooManyTerms where Lucene gives up."""
        counts = Counter(analyzer.terms(query))
        if len(counts) > MOST_CLAUSES:
            raise TooManyTerms(f"a query of {len(counts)} different terms")
        found = [(entry, count) for term, count in counts.items() if (entry := self._lookup(term))]
        if not found:
            return []
        few = sum(number for (_, number), _ in found) < self.documents // 16
        with self._lock:
            for entry, count in found:
                self._add(entry, count)
            candidates, scores = self._take_few(found) if few else self._take_best(most)
        order = np.lexsort((self._rank[candidates], -scores))[:most]
        return list(zip(candidates[order].tolist(), scores[order].tolist(), strict=True))

    def _add(self, entry: Entry, count: int) -> None:
        """Add one term's scores to the totals."""
        start, number = entry
        idf = np.float32(math.log(1 + (self._filled - number + 0.5) / (number + 0.5)))
        weight = np.float32(count) * idf
        for at in range(start, start + number, _BLOCK):
            end = min(at + _BLOCK, start + number)
            self._totals[self._docs[at:end]] += weight - weight / self._denominators[at:end]

    def _take_few(self, found: list[tuple[Entry, int]]) -> tuple[np.ndarray, np.ndarray]:
        """(documents, scores) of all that match, without touching the others; clears the totals."""
        candidates = np.unique(np.concatenate([self._docs[start : start + number] for (start, number), _ in found]))
        scores = self._totals[candidates].astype(np.float32)
        self._totals[candidates] = 0.0
        return candidates, scores

    def _take_best(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """(documents, scores) of at least the `most` best, found block by block; clears the totals."""
        candidates, scores = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        floor = np.float32(0)
        for start in range(0, self.documents, _BLOCK):
            block = self._totals[start : start + _BLOCK].astype(np.float32)
            new = np.flatnonzero(block >= floor if floor > 0 else block > 0)
            candidates, scores = np.concatenate([candidates, new + start]), np.concatenate([scores, block[new]])
            if len(scores) > most:
                floor = np.partition(scores, -most)[-most]
                candidates, scores = candidates[scores >= floor], scores[scores >= floor]
        self._totals.fill(0.0)
        return candidates, scores
