"""Our retrieval server in a thread of the test's process."""

from __future__ import annotations

import socket
import threading
import time

import uvicorn

from benchmarks.search_qa.retrieval.server import Service, create_app


class OwnServer:
    """Our server in a thread of this process, on a free port or a given one."""

    def __init__(self, service: Service, port: int = 0):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/retrieve"
        self.server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="error"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.005)

    def __enter__(self) -> OwnServer:
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.server.should_exit = True
        self.server.force_exit = True
        self.thread.join()
        self.socket.close()
