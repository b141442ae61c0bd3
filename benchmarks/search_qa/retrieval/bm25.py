"""BM25 in process: postings in CSR form, a batch of queries as one sparse product.

Score of passage d for the distinct words w of a query (Robertson and Zaragoza 2009; Lucene's idf, never negative):

    sum over w of  ln(1 + (N - n_w + 0.5)/(n_w + 0.5)) · f (k1 + 1) / (f + k1 (1 - b + b |d| / mean |d|))

with f the count of w in d. Each query is one row of the product, summed in the order of its word numbers: its hits
don't depend on what it is batched with. Equal scores are ordered by passage id.
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.search_qa.retrieval.base import Hit
from benchmarks.search_qa.retrieval.corpus import Corpus

logger = logging.getLogger(__name__)
K1, B = 1.5, 0.75
ANALYZER = "words-v1"  # part of the fingerprint: change it with `words`
_WORD = re.compile(r"\w+")
_STOP_WORDS = (
    "a an and are as at be but by did do does for from had has have he her his how in into is it its not of on or she "
    "that the their them then there these they this to was were what when where which who whom whose why will with"
)
_STOP = frozenset(_WORD.findall(_STOP_WORDS))
_LARGE = 300_000  # passages; above it memory and time are said before the index is built
_PIECE = re.compile(r"(\d+)")
_CHUNK = 256  # queries a product


def words(text: str) -> list[str]:
    """Searchable words: lower case without accents, no stop words, plural endings cut (Harman 1991's s-stemmer)."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(c))
    return [_stem(word) for word in _WORD.findall(plain) if word not in _STOP]


def _stem(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("us", "ss")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    if word.endswith("es") and not word.endswith(("aes", "ees", "oes")):
        return word[:-1]
    return word[:-1]


class Bm25:
    """An `Engine` over a corpus. Building costs about 60 µs and 1 KB a passage of 100 words."""

    def __init__(self, corpus: Corpus, k1: float = K1, b: float = B) -> None:
        self.corpus, self.k1, self.b = corpus, k1, b
        if len(corpus) > _LARGE:
            logger.warning(
                "BM25 in process over %d passages: about %.0f GB of memory and %.0f minutes to build; retriever=http "
                "or dense is meant for this size", len(corpus), len(corpus) * 1.2e-6, len(corpus) * 1.5e-4 / 60,
            )  # fmt: skip
        self._vocabulary, self._weights = self._index()
        self._rank = _id_ranks([passage.id for passage in corpus])

    def _index(self) -> tuple[dict[str, int], sparse.csr_array]:
        """The vocabulary and the weights [words, passages]."""
        vocabulary: dict[str, int] = {}
        rows, columns, counts, lengths = [], [], [], []
        for number, passage in enumerate(self.corpus):
            found = Counter(words(f"{passage.title} {passage.text}"))
            lengths.append(found.total())
            for word, count in found.items():
                rows.append(vocabulary.setdefault(word, len(vocabulary)))
                columns.append(number)
                counts.append(count)
        shape = (len(vocabulary), len(lengths))
        frequency = sparse.csr_array((np.array(counts, dtype=np.float64), (rows, columns)), shape=shape)
        return vocabulary, self._weighted(frequency, np.array(lengths, dtype=np.float64))

    def _weighted(self, frequency: sparse.csr_array, lengths: np.ndarray) -> sparse.csr_array:
        holding = np.diff(frequency.indptr)
        idf = np.log1p((len(lengths) - holding + 0.5) / (holding + 0.5))
        mean = lengths.mean() or 1.0
        norm = self.k1 * (1 - self.b + self.b * lengths / mean)
        f = frequency.data
        data = np.repeat(idf, holding) * f * (self.k1 + 1) / (f + norm[frequency.indices])
        return sparse.csr_array((data, frequency.indices, frequency.indptr), shape=frequency.shape)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Engine`. A query without a word of the corpus has no hits."""
        return [
            [self._hit(row, score) for row, score in best]
            for start in range(0, len(queries), _CHUNK)
            for best in self.rows(queries[start : start + _CHUNK], k)
        ]

    def rows(self, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        """(row of the passage, score) of at most k hits a query, best first."""
        ids = [sorted({self._vocabulary[w] for w in words(q) if w in self._vocabulary}) for q in queries]
        starts = np.cumsum([0, *map(len, ids)])
        flat = np.array([i for of_query in ids for i in of_query], dtype=np.int64)
        asked = sparse.csr_array((np.ones(len(flat)), flat, starts), shape=(len(queries), self._weights.shape[0]))
        scores = asked @ self._weights
        ends = scores.indptr
        return [
            self._best(scores.indices[ends[i] : ends[i + 1]], scores.data[ends[i] : ends[i + 1]], k)
            for i in range(len(queries))
        ]

    def _best(self, rows: np.ndarray, scores: np.ndarray, k: int) -> list[tuple[int, float]]:
        if len(rows) > k:
            kept = scores >= np.partition(scores, len(scores) - k)[len(scores) - k]  # ties of the last place too
            rows, scores = rows[kept], scores[kept]
        order = np.lexsort((self._rank[rows], -scores))[:k]
        return list(zip(rows[order].tolist(), scores[order].tolist(), strict=True))

    def _hit(self, row: int, score: float) -> Hit:
        passage = self.corpus[row]
        return Hit(passage.id, passage.title, passage.text, score)

    @property
    def fingerprint(self) -> str:
        """See `Engine`."""
        parts = f"bm25 {ANALYZER} {self.k1!r} {self.b!r} {self.corpus.hash}"
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def record(self) -> dict[str, Any]:
        """See `Engine`."""
        corpus = {"corpus": self.corpus.name, "passages": len(self.corpus), "corpus_hash": self.corpus.hash}
        settings = {"k1": self.k1, "b": self.b, "analyzer": ANALYZER}
        return {"engine": "bm25", **corpus, **settings, "fingerprint": self.fingerprint}

    def close(self) -> None:
        """Nothing to let go of."""


def _id_ranks(ids: list[str]) -> np.ndarray:
    """[passages] the place of each id when ids are sorted by text, digits by value ("hp9" before "hp10")."""
    order = sorted(
        range(len(ids)), key=lambda i: [(len(p), p) if p.isdecimal() else (0, p) for p in _PIECE.split(ids[i])]
    )
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[order] = np.arange(len(ids))
    return ranks
