"""The retrieval server as a process: socket, loading in the background, one line when it is ready."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from benchmarks.search_qa.retrieval.base import Engine, RetrievalError
from benchmarks.search_qa.retrieval.server import Limits, Service, create_app


@dataclass(frozen=True)
class Address:
    """Where to listen; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8000


def serve(build: Callable[[], Engine], address: Address, topk: int = 3, queue: int = 256) -> int:
    """Serve until Ctrl-C or SIGTERM, which open requests outlive; exit code 1 when the engine can't be built (said in
    one line).

    The server listens at once and says "loading" on /health while a large index loads. RetrievalError when the
    address is taken.
    """
    service = Service(Limits(default_k=topk, queue=queue))
    with listen(address) as listener:
        host, port = listener.getsockname()[:2]
        server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="warning", access_log=False))
        threading.Thread(target=_load, args=(service, build, server, f"http://{host}:{port}"), daemon=True).start()
        server.run(sockets=[listener])
    if service.problem:
        _say(f"error: {service.problem}")
    return 1 if service.problem else 0


def listen(address: Address) -> socket.socket:
    """A bound socket; RetrievalError when the address is taken or not this machine's."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RetrievalError(f"cannot listen on {address.host} port {address.port}: {reason}; try --port 0") from None
    return listener


def _load(service: Service, build: Callable[[], Engine], server: uvicorn.Server, url: str) -> None:
    _say(f"loading; {url}/health says when it is done")
    service.load(build)
    if service.engine is None:
        server.should_exit = True
        return
    told = service.engine.record()
    _say(f"serving {told['passages']} passages of {told['corpus']} with {told['engine']} on {url}/retrieve")


def _say(text: str) -> None:
    sys.stderr.write(f"creditbench serve-retrieval: {text}\n")
    sys.stderr.flush()
