"""The service on loopback: answers, refusals and waiting clients."""

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nmtdeep.decoding.translator import Translator

from .stand_ins import SECONDS, Shouter, ask, get, service, translate, until


@pytest.fixture(scope="module")
def real(tiny_run):
    """The port of a service with a real, tiny model."""
    with service(Translator.load([tiny_run.path]), max_characters=200, max_lines=12) as port:
        yield port


@pytest.fixture
def shouter():
    return Shouter()


def body(*lines: str) -> bytes:
    return json.dumps({"lines": lines}).encode()


def test_unusual_lines_have_a_translation_each(real):
    lines = ["", " \t ", "\x00", "a\u2028b\x85c\r", "\ufeff", "👩‍👩‍👧 \u202e abc", "</s> <pad>"]
    lines += ["e\u0301" * 40, "x" * 200, "." * 200]
    translations = translate(real, lines)
    assert len(translations) == len(lines)
    assert translations[:2] == ["", ""]
    assert not [text for text in translations if "\n" in text]


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (b"", 400, "invalid JSON"),
        (b'{"lines": ["a"]', 400, "invalid JSON"),
        (b'{"lines": ["\\ud800"]}', 400, "surrogate"),
        (b"[" * 100_000, 400, "recursion"),
        (b"1" * 100_000, 400, "out of range"),
        (b"{}", 422, "not a list of lines"),
        (b'{"lines": "Hello"}', 422, "not a list of lines"),
        (b'{"lines": ["a", 1]}', 422, "line 2 is not a string"),
        (b'{"lines": [], "beam": 4}', 422, "unknown key"),
        (b'{"lines": ["a", "b\\n"]}', 422, "line 2 contains a newline"),
        (body("a", "b" * 201), 413, "line 2 has more than 200 characters"),
        (body(*["a"] * 13), 413, "more than 12 lines"),
        (b" " * 2_000_000, 413, "more than 1048576 bytes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_invalid_request_is_refused_with_a_reason(real, sent, status, reason):
    answer = ask(real, sent)
    assert answer.status == status
    assert reason in answer.body["reason"] and "\n" not in answer.body["reason"]


@pytest.mark.parametrize(
    ("length", "sent", "status"),
    [
        ("Transfer-Encoding: chunked", b"100\r\n" + b"x" * 256 + b"\r\n", b"413"),
        ("Content-Length: 101", b"", b"413"),  # refused before the body
        ("Content-Length: 99999999999999999999", b"", b"413"),
        ("Content-Length: 9", b'{"lines', b"408"),
    ],
)
def test_a_body_that_is_too_long_or_does_not_arrive(shouter, length, sent, status):
    with service(shouter, max_body=100, body_seconds=0.5) as port, connected(port) as client:
        client.sendall(head(length) + sent)
        assert client.recv(12) == b"HTTP/1.1 " + status


PATHS = ("/", "/health", "/translate")


@pytest.mark.parametrize(
    ("path", "host", "served"),
    [
        *((path, "attacker.example:8000", False) for path in PATHS),
        *((path, "127.0.0.1:8000", True) for path in PATHS),
        ("/health", "LOCALHOST:9", True),
        ("/health", "[::1]:8000", True),
        ("/health", "proxy.example:80", True),
        ("/health", "localhost.attacker.example", False),
        ("/health", "127.0.0.1.attacker.example", False),
        ("/health", "192.0.2.1", False),
        ("/health", "[", False),
        ("/health", "", False),
    ],
)
def test_only_known_hosts_are_served(shouter, path, host, served):
    sent = body("a")
    with service(shouter, hosts=["Proxy.example"]) as port, connected(port) as client:
        method = "POST" if path == "/translate" else "GET"
        lines = (
            *(f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"),
            *("Content-Type: application/json", f"Content-Length: {len(sent)}", "", ""),
        )
        client.sendall("\r\n".join(lines).encode() + sent)
        answer = b"".join(iter(lambda: client.recv(10_000), b""))
        assert answer.startswith(b"HTTP/1.1 200" if served else b"HTTP/1.1 421")
        assert served or b"--allow-host" in answer
    assert bool(shouter.chunks) == (served and path == "/translate")


def test_a_model_without_a_finite_score_fails_one_request(shouter):
    with service(shouter, batch_wait=200.0) as port, ThreadPoolExecutor() as pool:
        asked = [pool.submit(ask, port, body(*lines)) for lines in (["b"], ["a", "overflow"])]
        good, bad = (each.result() for each in asked)
    assert good.status == 200 and good.body["translations"][0]["text"] == "B"
    assert bad.status == 500
    assert bad.body == {"reason": "run: nothing finite for input line 2"}


def test_a_page_of_another_site_cannot_send_requests(real):
    assert ask(real, body("a"), kind="text/plain").status == 415
    assert ask(real, body("a"), kind="Application/JSON; charset=utf-8").status == 200


def test_an_unknown_address_is_answered_with_the_known_ones(real):
    for path, status in (("/docs", 404), ("/translate", 405), ("/a%1bb", 404)):
        answer = get(real, path)
        assert answer.status == status
        assert "POST /translate" in json.loads(answer.body)["reason"]
        assert "\x1b" not in json.loads(answer.body)["reason"]


def test_a_full_queue_refuses_more_lines(shouter):
    with (
        service(shouter, batch_lines=2, max_queue=4, max_lines=4) as port,
        ThreadPoolExecutor(2) as clients,
    ):
        shouter.gate.clear()
        first = clients.submit(translate, port, ["a", "b"])
        until(lambda: shouter.chunks)
        second = clients.submit(translate, port, ["c", "d", "e"])
        until(lambda: health(port)["waiting_lines"] == 3)
        refused = ask(port, body("f", "g"))
        shouter.gate.set()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert (first.result(SECONDS), second.result(SECONDS)) == (["A", "B"], ["C", "D", "E"])
        assert translate(port, ["f", "g"]) == ["F", "G"]


def test_too_many_requests_at_once_are_refused(shouter):
    with service(shouter, max_requests=1) as port, ThreadPoolExecutor(1) as clients:
        shouter.gate.clear()
        first = clients.submit(translate, port, ["a"])
        until(lambda: shouter.chunks)
        refused = ask(port, body("b"))
        shouter.gate.set()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert first.result(SECONDS) == ["A"]


def test_lines_of_a_client_that_leaves_are_dropped(shouter):
    with service(shouter, batch_lines=1) as port, ThreadPoolExecutor(1) as clients:
        shouter.gate.clear()
        first = clients.submit(translate, port, ["a"])
        until(lambda: shouter.chunks)
        with connected(port) as leaver:
            request = body(*["never"] * 30)
            leaver.sendall(head(f"Content-Length: {len(request)}") + request)
            until(lambda: health(port)["waiting_lines"] == 30)
        until(lambda: health(port)["waiting_lines"] == 0)
        shouter.gate.set()
        assert first.result(SECONDS) == ["A"]
        assert translate(port, ["b"]) == ["B"]
        assert health(port)["requests"] == 3
    assert shouter.chunks == [["a"], ["b"]]


def test_the_page_loads_nothing(shouter):
    with service(shouter) as port:
        page = get(port, "/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.search(r"https?:|//[a-z]|@import|<link[^>]+href=\"(?!data:)", page.body)
    assert "&lt;en&gt;" in page.body and "<en>" not in page.body


def health(port: int) -> dict[str, int]:
    return json.loads(get(port, "/health").body)


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
        yield client


def head(length: str) -> bytes:
    kind = "Content-Type: application/json"
    return f"POST /translate HTTP/1.1\r\nHost: x\r\n{kind}\r\n{length}\r\n\r\n".encode()
