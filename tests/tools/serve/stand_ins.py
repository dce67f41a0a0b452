"""A translator that shouts, when it is let; the service in a thread; plain requests."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import uvicorn

from nmtdeep.decoding.translation import Candidate, Translation
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.tools.serve import ServiceOptions
from nmtdeep.tools.serve.application import application

SECONDS = 30


class Shouter:
    """Translates to capital letters while its gate is open, and keeps the chunks it was given."""

    def __init__(self, source: str = "<en>") -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.chunks: list[list[str]] = []
        self.counted = 0
        languages = (SimpleNamespace(language=language) for language in (source, "<en>"))
        self.pipeline = SimpleNamespace(**dict(zip(("source", "target"), languages, strict=True)))
        self.options = SimpleNamespace(output_is="raw")

    def restart(self, lines: int = 0) -> None:
        self.counted = lines

    def translate_chunk(self, lines: Sequence[str]) -> list[Translation]:
        self.chunks.append(list(lines))
        assert self.gate.wait(SECONDS)
        for number, line in enumerate(lines, self.counted + 1):
            if line == "refuse":
                raise UserError(f"line {number} is refused")
            if line == "overflow":
                raise CheckpointError(f"nothing finite for input line {number}", where="run")
            if line == "fail":
                raise RuntimeError("a fault")
        return [
            Translation(line, (), (Candidate(line.upper(), line, (), -1.0, -2.0),))
            for line in lines
        ]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


@contextlib.contextmanager
def service(
    translator: Any,
    *,
    batch_lines: int = 8,
    batch_wait: float = 0.0,
    hosts: Sequence[str] | None = None,
    **limits: Any,
) -> Iterator[int]:
    """The port of a service on loopback."""
    chosen = ServiceOptions(batch_lines=batch_lines, batch_wait=batch_wait, **limits)
    app = application(translator, chosen, hosts)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, http="h11"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(SECONDS)
        assert not thread.is_alive()


def until(condition: Callable[[], object]) -> None:
    for _ in range(100 * SECONDS):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def ask(port: int, body: bytes, kind: str = "application/json") -> Answer:
    """POST /translate."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", "/translate", body, {"Content-Type": kind})
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.headers), json.loads(answer.read()))


def translate(port: int, lines: list[str]) -> list[str]:
    """Texts of the translations."""
    answer = ask(port, json.dumps({"lines": lines}).encode())
    assert answer.status == 200, answer
    return [translation["text"] for translation in answer.body["translations"]]


def get(port: int, path: str) -> Answer:
    """The text at an address."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.headers), answer.read().decode())
