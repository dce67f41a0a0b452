"""A web server on loopback that serves bytes, and fails on demand."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Server(ThreadingHTTPServer):
    """Attributes:

    files: path to bytes.
    faults: path to the answers of its next requests; after them it gets the file. A number below
        600 is a status, `("cut", n)` the first n bytes and then the end, "hang" headers and then
        nothing, "html" a page, ("to", url) a redirect.
    lengths: whether the server says how long a file is.
    requests: the path of every request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: defaultdict[str, list[object]] = defaultdict(list)
        self.lengths = True
        self.requests: list[str] = []
        self.leave = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.server.requests.append(name)
        fault = self.server.faults[name].pop(0) if self.server.faults[name] else None
        match fault:
            case int():
                self.send_error(fault)
            case ("to", url):
                self.send_response(302)
                self.send_header("Location", str(url))
                self.end_headers()
            case "html":
                self._send(b"<html>Too many users</html>", None, "text/html; charset=utf-8")
            case _ if name not in self.server.files:
                self.send_error(404)
            case _:
                self._send(self.server.files[name], fault, "application/octet-stream")

    def _send(self, body: bytes, fault: object, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if self.server.lengths:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault == "hang":
            self.wfile.flush()
            self.server.leave.wait(20)
        else:
            self.wfile.write(body[: fault[1]] if isinstance(fault, tuple) else body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        running.leave.set()
        running.shutdown()
        thread.join()
        running.server_close()
