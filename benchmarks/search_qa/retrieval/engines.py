"""Engines from options: which corpus, which engine; an engine is built once a process and shared."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from benchmarks.search_qa.options import SAMPLES, Options
from benchmarks.search_qa.questions import shipped_path
from benchmarks.search_qa.retrieval.base import Engine
from benchmarks.search_qa.retrieval.bm25 import Bm25
from benchmarks.search_qa.retrieval.corpus import Corpus, load_corpus
from benchmarks.search_qa.retrieval.http_client import HttpEngine, Server
from benchmarks.search_qa.worlds import world

URL_VARIABLE = "CREDITBENCH_RETRIEVAL_URL"


def build(options: Options, dialect: str) -> Engine:
    """The engine that the options name; `dialect` is used where they name none. ValueError or OSError otherwise."""
    if options.retriever == "http":
        return HttpEngine(server(options, dialect))
    if options.retriever == "dense":
        return _dense(options.data, options.corpus, options.encoder, options.index, options.index_mmap)
    return _bm25(options.data, options.corpus)


def server(options: Options, dialect: str) -> Server:
    """Where the options say that the retrieval server is."""
    given = options.url or os.environ.get(URL_VARIABLE, "")
    return Server(
        urls=tuple(url.strip() for url in given.split(",") if url.strip()),
        dialect=options.dialect or dialect,
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        attempts=options.attempts,
    )


@functools.lru_cache(maxsize=4)
def corpus_of(data: str, path: str) -> Corpus:
    """The passages: a file, the made world's, or those of both shipped samples, so that neither is too easy."""
    if path:
        return load_corpus([Path(path).expanduser()], Path(path).name)
    if data == "search-worlds":
        return world().corpus
    return load_corpus([shipped_path(f"{name}.corpus.jsonl.gz") for name in SAMPLES], "+".join(SAMPLES))


@functools.lru_cache(maxsize=4)
def _bm25(data: str, path: str) -> Bm25:
    return Bm25(corpus_of(data, path))


@functools.lru_cache(maxsize=2)
def _dense(data: str, path: str, encoder: str, index: str, mmap: bool) -> Engine:
    from benchmarks.search_qa.retrieval.dense import Dense, check_memory
    from benchmarks.search_qa.retrieval.encoders import Encoder

    if index:
        check_memory(Path(index).expanduser(), mmap)  # before the corpus and the encoder
    loaded = Path(index).expanduser() if index else None
    return Dense(corpus_of(data, path), Encoder(encoder), loaded, mmap)
