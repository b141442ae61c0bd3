"""Our own retrieval server, in the dialects of the published ones, over any engine.

`POST /retrieve` takes `queries` (a list) or `query` (one text), `topk` and `return_scores`; `GET /health` says what is
served and whether it is loaded. One index serves all requests; waiting requests are bounded, and one too many gets
503 at once, which clients take as "later".
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from benchmarks.search_qa.retrieval.base import Engine, Hit
from benchmarks.search_qa.retrieval.http_client import FINGERPRINT_HEADER

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """default_k: hits where a request names none; largest_k, largest_batch: most hits and queries a request may ask
    for; queue: requests that may wait or work at a time; parallel: how many of them the engine works on."""

    default_k: int = 3
    largest_k: int = 100
    largest_batch: int = 4096
    queue: int = 256
    parallel: int = 2


class Question(BaseModel):
    """A request in either dialect."""

    model_config = ConfigDict(extra="ignore", strict=True)
    queries: list[str] | None = None
    query: str | None = None
    topk: int | None = Field(default=None, ge=1)
    return_scores: bool = False


@dataclass
class Service:
    """The engine once it is loaded, and how busy it is."""

    limits: Limits
    engine: Engine | None = None
    problem: str = ""
    waiting: int = 0
    answered: int = 0
    _gate: threading.Semaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._gate = threading.Semaphore(self.limits.parallel)

    def load(self, build: Callable[[], Engine]) -> None:
        """Build the engine; what goes wrong is kept in `problem`."""
        try:
            self.engine = build()
        except Exception as error:
            self.problem = f"{type(error).__name__}: {' '.join(str(error).split())}"

    def answer(self, queries: Sequence[str], k: int, with_scores: bool) -> bytes:
        """The body of an answer."""
        assert self.engine is not None
        with self._gate:
            found = self.engine.search(queries, k)
        result = [[_entry(hit, with_scores) for hit in hits] for hits in found]
        return json.dumps({"result": result}, allow_nan=False).encode()

    def health(self) -> dict[str, Any]:
        """What `/health` says."""
        state = "failed" if self.problem else "loading" if self.engine is None else "ok"
        told = self.engine.record() if self.engine is not None else {}
        busy = {"waiting": self.waiting, "answered": self.answered}
        return {"status": state, **({"problem": self.problem} if self.problem else {}), **told, **busy}


def _entry(hit: Hit, with_score: bool) -> dict[str, Any]:
    document = {"id": hit.id, "contents": hit.contents, "title": hit.title, "text": hit.text}
    return {"document": document, "score": hit.score} if with_score else document


def create_app(service: Service) -> FastAPI:
    """The application; `service.engine` may still be loading, and is 503 until then."""
    app = FastAPI(title="creditbench retrieval", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(RequestValidationError)
    async def refuse(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return _refusal(422, f"{where or 'body'}: {first['msg']}")

    @app.get("/health")
    async def health() -> JSONResponse:
        said = service.health()
        return JSONResponse(said, status_code=200 if said["status"] == "ok" else 503)

    @app.post("/retrieve")
    async def retrieve(question: Question) -> Response:
        return await _retrieve(service, question)

    return app


async def _retrieve(service: Service, question: Question) -> Response:
    limits, engine = service.limits, service.engine
    if engine is None:
        return _refusal(503, service.problem or "the index is still loading")
    if (question.queries is None) == (question.query is None):
        return _refusal(422, 'give either "queries", a list of texts, or "query", one text')
    queries = [question.query] if question.query is not None else question.queries or []
    k = limits.default_k if question.topk is None else question.topk
    if len(queries) > limits.largest_batch or k > limits.largest_k:
        return _refusal(422, f"at most {limits.largest_batch} queries and topk {limits.largest_k} a request")
    if service.waiting >= limits.queue:
        return _refusal(503, f"{service.waiting} requests are waiting already")
    service.waiting += 1
    try:
        body = await run_in_threadpool(service.answer, queries, k, question.return_scores)
    except Exception as error:
        logger.exception("retrieval failed")
        return _refusal(500, f"{type(error).__name__}: {error}")
    finally:
        service.waiting -= 1
    service.answered += len(queries)
    return Response(body, media_type="application/json", headers={FINGERPRINT_HEADER: engine.fingerprint})


def _refusal(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status_code=status, headers={"Retry-After": "1"} if status == 503 else None)
