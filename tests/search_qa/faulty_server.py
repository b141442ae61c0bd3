"""A retrieval server on loopback that misbehaves on purpose, request by request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = tuple[int, bytes]
Fault = Callable[[dict, bytes], Reply]


def found(queries: list[str], k: int, prefix: str = "d") -> bytes:
    """A right answer: passages whose text repeats the query."""
    result = [
        [{"document": {"id": f"{prefix}{i}", "contents": f'"T{i}"\n{query}'}, "score": 1.0 - i / 10} for i in range(k)]
        for query in queries
    ]
    return json.dumps({"result": result}).encode()


def right(request: dict, answer: bytes) -> Reply:
    return 200, answer


def slow(seconds: float) -> Fault:
    def fault(request: dict, answer: bytes) -> Reply:
        time.sleep(seconds)
        return 200, answer

    return fault


def status(code: int) -> Fault:
    return lambda request, answer: (code, b'{"error": "scripted"}')


def truncated(request: dict, answer: bytes) -> Reply:
    return 200, answer[: len(answer) // 2]


def wrong_count(request: dict, answer: bytes) -> Reply:
    return 200, json.dumps({"result": json.loads(answer)["result"] * 2}).encode()


def body(content: bytes) -> Fault:
    return lambda request, answer: (200, content)


class FaultyServer:
    """Serves `faults` one after the other, then right answers. `requests` holds what was asked."""

    def __init__(self, faults: list[Fault] | None = None, prefix: str = "d"):
        self.faults, self.requests, self.connections = list(faults or []), [], set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(request)
                outer.connections.add(self.client_address)
                queries = request["queries"] if "queries" in request else [request["query"]]
                fault = outer.faults.pop(0) if outer.faults else right
                code, content = fault(request, found(queries, request["topk"], prefix))
                self.reply(code, content)

            def do_GET(self):
                self.reply(404, b"{}")

            def reply(self, code: int, content: bytes):
                try:
                    self.send_response(code)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except BrokenPipeError:
                    pass  # the client stopped waiting

            def log_message(self, *_):
                pass

        ThreadingHTTPServer.request_queue_size = 64
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/retrieve"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> FaultyServer:
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
