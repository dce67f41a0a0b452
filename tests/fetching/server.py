"""A web server on loopback that serves bytes, and misbehaves as it is told."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Attributes:

    files: path to bytes.
    faults: path to what each request for it gets, one after the other; then it gets the file.
        A number below 600 is a status, `("cut", n)` the first n bytes of what was asked for and
        then the end, "hang" headers and then nothing, "html" a page, ("to", url) a redirect.
    ranges, tags, lengths: whether the server knows ranges, sends an ETag, says how long a file is.
    asked: (path, Range header) of every request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: defaultdict[str, list[object]] = defaultdict(list)
        self.ranges = self.tags = self.lengths = True
        self.asked: list[tuple[str, str | None]] = []
        self.leave = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        wanted = self.headers.get("Range")
        self.server.asked.append((name, wanted))
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
        tag = f'"{sha1(body).hexdigest()}"'
        wanted = self.headers.get("Range") if self.server.ranges else None
        if wanted and self.server.tags and self.headers.get("If-Range") != tag:
            wanted = None
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if wanted and start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.server.tags:
            self.send_header("ETag", tag)
        self.send_header("Content-Type", kind)
        if self.server.lengths:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        sent = body[start:]
        if isinstance(fault, tuple):
            sent = sent[: fault[1]]
        self.wfile.write(b"" if fault == "hang" else sent)
        if fault == "hang":
            self.wfile.flush()
            self.server.leave.wait(20)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.leave.set()
        server.shutdown()
        thread.join()
        server.server_close()
