"""What all sessions of a process share: the catalogue, its search engine, and what is remembered of both."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from benchmarks.webshop import analyzer
from benchmarks.webshop.index import K1, B, TooManyTerms
from benchmarks.webshop.products import Product
from benchmarks.webshop.store import Store

MOST_RESULTS = 50
ENGINES = ("lucene", "bm25s", "pyserini")
_REMEMBERED = 2048  # queries


class QueryError(ValueError):
    """A query that makes the original fail."""


class Search(Protocol):
    """A search engine: positions of the best products of a query, best first."""

    def __call__(self, query: str) -> list[int]: ...


def engine(name: str, store: Store, index: str = "") -> Search:
    """The engine `lucene` (built in, exact), `bm25s` (needs the package; other length norms, so other ranks) or
    `pyserini` (needs the package, Java, and the folder of a Lucene index of the same products)."""
    if name == "lucene":
        return lambda query: [position for position, _ in store.index.search(query, MOST_RESULTS)]
    if name == "bm25s":
        return _bm25s(store)
    if name == "pyserini":
        return _pyserini(store, index)
    raise ValueError(f"unknown search engine {name!r} (known: {', '.join(ENGINES)})")


def _bm25s(store: Store) -> Search:
    try:
        import bm25s
    except ImportError:
        raise ValueError("webshop option search=bm25s needs a package: pip install bm25s") from None
    documents = [analyzer.terms(product.indexed_text()) for product in store.products()]
    asins = [product.asin for product in store.products()]
    retriever: Any = bm25s.BM25(method="lucene", k1=K1, b=B)
    retriever.index(documents, show_progress=False)

    def search(query: str) -> list[int]:
        words = [word for word in analyzer.terms(query) if word in retriever.vocab_dict]
        if not words:
            return []
        scores = retriever.get_scores(words)
        found = [position for position in scores.argsort()[::-1][: 4 * MOST_RESULTS].tolist() if scores[position] > 0]
        return sorted(found, key=lambda position: (-scores[position], asins[position]))[:MOST_RESULTS]

    return search


def _pyserini(store: Store, index: str) -> Search:
    if not Path(index).is_dir():
        raise ValueError(f"webshop option search=pyserini: no Lucene index in search_index={index!r}")
    try:
        from pyserini.search.lucene import LuceneSearcher
    except ImportError:
        raise ValueError("webshop option search=pyserini needs a package and Java: pip install pyserini") from None
    searcher: Any = LuceneSearcher(index)

    def search(query: str) -> list[int]:
        found = (store.position(hit.docid) for hit in searcher.search(query, k=MOST_RESULTS))
        return [position for position in found if position is not None]  # as in the original, strangers vanish

    return search


class Shop:
    """Products and searches of one catalogue. With `legacy_queries`, the original's hidden queries work:
    `<r>` (fifty random products), `<c> category` and `<q> query` (all products of it)."""

    def __init__(self, store: Store, search: Search, legacy_queries: bool = False, seed: int = 0) -> None:
        self.store, self._legacy = store, legacy_queries
        self._rng = random.Random(seed)
        self._search: Callable[[str], tuple[int, ...]] = functools.lru_cache(maxsize=_REMEMBERED)(
            lambda query: tuple(search(query))
        )
        self.position: Callable[[str], int | None] = functools.lru_cache(maxsize=8192)(store.position)

    def product(self, position: int) -> Product:
        """The product at a position."""
        return self.store.product(position)

    def find(self, keywords: tuple[str, ...]) -> tuple[int, ...]:
        """Positions of the products of a query, best first. QueryError where the original fails."""
        if self._legacy and keywords[0] in ("<r>", "<a>", "<c>", "<q>"):
            return self._hidden(keywords)
        try:
            return self._search(" ".join(keywords))
        except TooManyTerms as error:
            raise QueryError(str(error)) from None

    def _hidden(self, keywords: tuple[str, ...]) -> tuple[int, ...]:
        sign = keywords[0]
        if sign == "<r>" and len(self.store) >= MOST_RESULTS:
            return tuple(self._rng.sample(range(len(self.store)), MOST_RESULTS))
        if sign == "<c>" and len(keywords) > 1:
            return tuple(self.store.positions("category", keywords[1].strip()))
        if sign == "<q>":
            return tuple(self.store.positions("query", " ".join(keywords[1:]).strip()))
        raise QueryError(f"the original fails on {sign} here")
