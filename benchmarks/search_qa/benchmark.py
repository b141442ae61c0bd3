"""Measures retrieval: `python -m benchmarks.search_qa.benchmark`. Prints milliseconds a query, and the seconds that a
rollout turn of 1,280 searches (256 questions, 5 trajectories each) spends, against the simple ways."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.search_qa import make, questions
from benchmarks.search_qa.retrieval import engines
from benchmarks.search_qa.retrieval.base import Engine, Retriever
from benchmarks.search_qa.retrieval.bm25 import K1, B, Bm25, words
from benchmarks.search_qa.retrieval.http_client import HttpEngine, Server

TURN, REPEATS, K = 1_280, 5, 3


def main() -> None:
    """Print the measurements."""
    corpus = engines.corpus_of("hotpotqa-mini", "")
    started = time.perf_counter()
    bm25 = Bm25(corpus)
    print(f"index of {len(corpus)} passages: {time.perf_counter() - started:.2f} s")
    asked = distinct_queries(TURN)
    single = [_seconds(partial(bm25.search, [query], K)) for query in asked[:300]]
    print(f"one query at a time: {1e3 * statistics.median(single):.3f} ms median, "
          f"{1e3 * sorted(single)[int(0.95 * len(single))]:.3f} ms p95")  # fmt: skip
    batch = _best(lambda: bm25.search(asked, K))
    print(f"batch of {TURN} distinct queries: {1e3 * batch / TURN:.3f} ms a query, {batch:.3f} s")
    slow = _seconds(lambda: _dictionary_search(bm25, asked[:20])) / 20
    print(f"words in dictionaries, the simple way: {1e3 * slow:.2f} ms a query, {slow * TURN / batch:.0f} x the batch")
    _turns(bm25, asked)
    _rollout(bm25, asked)


def distinct_queries(count: int) -> list[str]:
    """Questions of the shipped samples, and their halves."""
    texts = [q.text for name in ("2wiki-mini", "hotpotqa-mini") for q in questions.shipped(name)]
    halves = [" ".join(text.split()[: len(text.split()) // 2]) for text in texts]
    return list(dict.fromkeys([*texts, *halves]))[:count]


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _best(call: Callable[[], object]) -> float:
    return min(_seconds(call) for _ in range(REPEATS))


def _dictionary_search(bm25: Bm25, asked: Sequence[str]) -> list[list[tuple[float, str]]]:
    """BM25 by the formula, one passage after the other, term counts made beforehand."""
    bags = getattr(bm25, "_bags", None)
    if bags is None:
        bags = [(p.id, Counter(words(f"{p.title} {p.text}"))) for p in bm25.corpus]
        bm25._bags = bags  # type: ignore[attr-defined]
    mean = sum(bag.total() for _, bag in bags) / len(bags)
    found = []
    for query in asked:
        terms = set(words(query))
        holding = {term: sum(term in bag for _, bag in bags) for term in terms}
        idf = {term: math.log1p((len(bags) - n + 0.5) / (n + 0.5)) for term, n in holding.items()}
        scored = [
            (sum(idf[t] * bag[t] * (K1 + 1) / (bag[t] + K1 * (1 - B + B * bag.total() / mean)) for t in terms), name)
            for name, bag in bags
        ]
        found.append(sorted(scored, reverse=True)[:K])
    return found


def _turns(bm25: Bm25, asked: list[str]) -> None:
    """A turn in process and over loopback HTTP, cold: nothing remembered, every query another one."""
    print(f"\na turn of {TURN} distinct queries, seconds in retrieval:")
    here = _best(lambda: Retriever(bm25, K).search(asked))
    print(f"  in process              {here:.3f}   (bound 0.2)")
    with Serving(bm25) as url:
        batched, one_by_one = HttpEngine(Server((url,))), HttpEngine(Server((url,), dialect="query"))
        over = _best(lambda: Retriever(batched, K).search(asked))
        print(f"  HTTP, dialect queries   {over:.3f}   (bound 0.5)")
        alone = _seconds(lambda: Retriever(one_by_one, K).search(asked))
        print(f"  HTTP, dialect query     {alone:.3f}   {alone / over:.0f} x the batch: {TURN} requests")
        assert batched.search(asked[:50], K) == one_by_one.search(asked[:50], K) == bm25.search(asked[:50], K)


def _rollout(bm25: Engine, asked: list[str]) -> None:
    """The environment's own steps: groups of five that ask the same thing, then different ones."""
    benchmark = make()
    pool = benchmark.pool(TURN)
    tasks = [task for task in benchmark.task_set("out_of_domain", 256).tasks for _ in range(5)]
    print(f"\npool.step of {TURN} episodes, whole step and the part in retrieval:")
    for name, queries in (
        ("256 queries, each 5 times", [str(task.payload["question"]) for task in tasks]),
        ("1,280 distinct queries", asked),
    ):
        retriever = Retriever(bm25, K)
        pool.retriever = retriever  # type: ignore[attr-defined]
        pool.reset(tasks)
        actions = [(slot, f"<search>{query}</search>") for slot, query in enumerate(queries)]
        seconds = _seconds(partial(pool.step, actions))
        print(f"  {name:26} {seconds:.3f} s, {retriever.usage.seconds:.3f} s in retrieval")


class Serving:
    """Our server in a thread of this process; its address."""

    def __init__(self, engine: Engine) -> None:
        import uvicorn

        from benchmarks.search_qa.retrieval.server import Limits, Service, create_app
        from benchmarks.search_qa.retrieval.serving import Address, listen

        self._listener = listen(Address(port=0))
        app = create_app(Service(Limits(), engine))
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/retrieve"

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


if __name__ == "__main__":
    main()
