"""A retrieval server as an engine: both dialects of the published servers, kept connections, bounded retries.

    POST <url>  {"queries": ["..."], "topk": 3, "return_scores": true}     Search-R1: one request a batch
    POST <url>  {"query": "...", "topk": 3, "return_scores": true}         verl-agent: one request a query
    answer      {"result": [[{"document": {"id", "contents"}, "score": 1.0}, ...], ...]}, one list a query

A connection that fails, a time-out, a 5xx or an answer that is not of this form is tried again, with growing pauses.
When the tries are used up the caller gets a RetrievalError; the model never sees a failure as text.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx

from benchmarks.search_qa.retrieval.base import Hit, RetrievalError
from benchmarks.search_qa.retrieval.corpus import read_passage

logger = logging.getLogger(__name__)
FINGERPRINT_HEADER = "X-Retrieval-Fingerprint"
_PROBE = "In which city was the author of the novel born?"
_BATCH = 512  # queries a request
_CONNECTIONS = 32  # requests at a time: servers behind the published API fail beyond that
_TRY_AGAIN = (408, 425, 429)


@dataclass(frozen=True)
class Server:
    """Where and how to ask. `pause` is the first wait between tries in seconds; it doubles up to `longest_pause`."""

    urls: tuple[str, ...]
    dialect: str = "queries"
    connect_timeout: float = 5.0
    read_timeout: float = 60.0
    attempts: int = 10
    pause: float = 0.5
    longest_pause: float = 30.0

    def __post_init__(self) -> None:
        if not self.urls:
            raise ValueError("retriever=http needs url=http://host:port/retrieve (or CREDITBENCH_RETRIEVAL_URL)")
        for url in self.urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"retrieval url {url!r} must begin with http:// or https://")
            try:
                host, reason = httpx.URL(url).host, "no host"
            except httpx.InvalidURL as error:
                host, reason = "", str(error)
            if not host:
                raise ValueError(f"retrieval url {url!r} is none: {reason}; it has the form http://host:port/retrieve")


class _Malformed(ValueError):
    """An answer that is not of the published form."""


@dataclass
class HttpEngine:
    """An `Engine` over one or more equal servers, used in turn. Safe to use from one thread at a time."""

    server: Server
    remote: ClassVar[bool] = True
    _client: httpx.Client = field(init=False, repr=False)
    _identity: str = field(default="", init=False)
    _told: bool = field(default=False, init=False)  # the server itself says what it serves, with every answer
    _said: str = field(default="", init=False)  # what the newest answer told
    _failures: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        timeout = httpx.Timeout(self.server.read_timeout, connect=self.server.connect_timeout)
        self._client = httpx.Client(limits=limits, timeout=timeout, trust_env=False)
        self._turn = itertools.count()
        self._pool = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="retrieval")
        self._jitter = random.Random()  # never the global one: seeds of the run stay as they are

    # ------------------------------------------------------------------------------------------------ asking
    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Engine`. RetrievalError when the tries are used up, or when a server that had failed came back with
        other passages than before."""
        known, failures = self.fingerprint, self._failures
        answers = self._ask(queries, k)
        if self._failures != failures and not self._told and self._found_by_probe() != known:
            raise RetrievalError(self._changed())
        return answers

    def _ask(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        if self.server.dialect == "query":
            return self._ask_one_by_one(queries, k)
        parts = [list(queries[start : start + _BATCH]) for start in range(0, len(queries), _BATCH)]
        return [hits for part in parts for hits in self._request({"queries": part}, len(part), k)]

    def _ask_one_by_one(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Many requests at a time; the first one that fails for good ends them all."""
        asked = [self._pool.submit(self._request, {"query": query}, 1, k) for query in queries]
        wait(asked, return_when=FIRST_EXCEPTION)
        for request in asked:
            request.cancel()
        failed = [request for request in asked if request.done() and not request.cancelled() and request.exception()]
        return [hits for request in failed or asked for hits in request.result()]

    def _request(self, question: dict[str, Any], count: int, k: int) -> list[list[Hit]]:
        body = json.dumps({**question, "topk": k, "return_scores": True}).encode()
        return self._persist(lambda url: self._post(url, body, count))

    def _persist(self, attempt: Callable[[str], Any]) -> Any:
        """`attempt(url)` until it works, at most `attempts` times, servers in turn."""
        reason, url = "", ""
        for number in range(1, self.server.attempts + 1):
            url = self.server.urls[next(self._turn) % len(self.server.urls)]
            try:
                return attempt(url)
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                reason = f"HTTP {status}{_detail(error.response)}"
                if status < 500 and status not in _TRY_AGAIN:
                    raise RetrievalError(f"retrieval server {url} refused the request: {reason}") from None
            except (httpx.TransportError, httpx.DecodingError, _Malformed) as error:
                reason = f"{type(error).__name__.lstrip('_')}: {' '.join(str(error).split())}".rstrip(": ")
            self._failures += 1
            if number < self.server.attempts:
                self._wait(url, number, reason)
        raise RetrievalError(
            f"retrieval server {url} failed {self.server.attempts} times, the last with {reason}; start it again (or "
            "set benchmark.options.url), then repeat the command: the run goes on from its newest checkpoint"
        )

    def _wait(self, url: str, number: int, reason: str) -> None:
        longest = min(self.server.longest_pause, self.server.pause * 2 ** (number - 1))
        seconds = longest * (0.5 + 0.5 * self._jitter.random())
        say = logger.warning if number > 1 else logger.info
        say("retrieval server %s: %s; try %d of %d in %.1f s", url, reason, number + 1, self.server.attempts, seconds)
        time.sleep(seconds)

    def _post(self, url: str, body: bytes, count: int) -> list[list[Hit]]:
        response = self._client.post(url, content=body, headers={"Content-Type": "application/json"})
        response.raise_for_status()
        answer = read_answer(response.content, count)
        self._said = said = response.headers.get(FINGERPRINT_HEADER, "")
        if self._told and _hashed(said) != self._identity:
            raise RetrievalError(self._changed())
        return answer

    # ------------------------------------------------------------------------------------------------ identity
    @property
    def fingerprint(self) -> str:
        """See `Engine`: the server's own where it tells one, else a hash of what it finds for a fixed query."""
        if not self._identity:
            self._identity = self._identify()
        return self._identity

    def _identify(self) -> str:
        """Asks a query, because a server that is still loading is waited for that way."""
        probed = self._found_by_probe()
        self._told = bool(self._said)
        return _hashed(self._said) if self._told else probed

    def _found_by_probe(self) -> str:
        (hits,) = self._ask([_PROBE], 10)
        return _hashed(json.dumps([hit.id for hit in hits]))

    def _health(self) -> dict[str, Any]:
        """What `/health` beside the first URL says; {} where there is no such route."""
        url = httpx.URL(self.server.urls[0]).copy_with(path="/health", query=None)
        try:
            response = self._client.get(url)
            said = response.json() if response.status_code == 200 else {}
        except (httpx.HTTPError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}

    def _changed(self) -> str:
        return (
            f"retrieval server {', '.join(self.server.urls)} answers from other passages than before "
            f"(fingerprint was {self._identity}); serve the same corpus, or begin a new run"
        )

    def probe(self, k: int) -> None:
        """One query at the start: RetrievalError unless the server answers in the published form; a warning when it
        finds fewer than k passages or gives scores that do not fall."""
        (hits,) = self._ask([_PROBE], k)
        if len(hits) < k:
            logger.warning("retrieval server %s found %d passages of %d asked for", self.server.urls[0], len(hits), k)
        if any(a.score < b.score for a, b in itertools.pairwise(hits)):
            logger.warning("retrieval server %s: scores do not fall; its order is kept", self.server.urls[0])

    def record(self) -> dict[str, Any]:
        """See `Engine`."""
        told = {key: value for key, value in self._health().items() if key in _TOLD}
        mine = {"engine": "http", "urls": list(self.server.urls), "dialect": self.server.dialect}
        return {**mine, "server": told or None, "fingerprint": self.fingerprint}

    def close(self) -> None:
        """End the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()


_TOLD = ("engine", "corpus", "passages", "corpus_hash", "encoder", "index", "k1", "b", "analyzer", "fingerprint")


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _detail(response: httpx.Response) -> str:
    text = " ".join(response.text.split())
    return f" ({text[:200]})" if text else ""


def read_answer(content: bytes, count: int) -> list[list[Hit]]:
    """The hits of `count` queries in an answer's body. _Malformed for anything but the published form."""
    try:
        payload = json.loads(content)
    except ValueError:
        raise _Malformed(f"the answer is not JSON ({len(content)} bytes)") from None
    result = payload.get("result") if isinstance(payload, dict) else None
    if not isinstance(result, list):
        raise _Malformed('the answer holds no list "result"')
    if len(result) != count:
        raise _Malformed(f"{len(result)} results for {count} queries")
    return [_hits(entries) for entries in result]


def _hits(entries: Any) -> list[Hit]:
    if not isinstance(entries, list):
        raise _Malformed("a query's result is not a list")
    return [_hit(entry) for entry in entries]


def _hit(entry: Any) -> Hit:
    scored = isinstance(entry, dict) and isinstance(entry.get("document"), dict)
    document, score = (entry["document"], entry.get("score")) if scored else (entry, 0.0)
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
        raise _Malformed(f"a score is {score!r}")
    try:
        passage = read_passage(document, "a hit")
    except ValueError as error:
        raise _Malformed(str(error)) from None
    return Hit(passage.id, passage.title, passage.text, float(score))
