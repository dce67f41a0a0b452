"""Services: `nmtdeep serve`, and `translate` between two pipes, as real processes."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tools.serve.stand_ins import ask, get, until

from commands.runs import UNUSUAL, translated

OPTIONS = (
    "--beam", "3", "--lenpen", "1.5", "--lenpen-form", "gnmt", "--n-best", "2",
    "--max-source-tokens", "9", "--long-lines", "truncate", "--output-is", "tokenized",
)  # fmt: skip


@pytest.fixture
def served(whole):
    """The process of a service, and its port."""
    command = ["serve", "-m", str(whole), "--port", "0", *OPTIONS]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "nmtdeep", *command], stdout=pipe, stderr=pipe
    ) as process:
        try:
            said = process.stdout.readline().decode()
            assert said.startswith("http://127.0.0.1:") and said.endswith(f": {whole}\n")
            yield process, int(said.split(":")[2])
        finally:
            process.kill()


def test_answers_equal_the_command_and_a_signal_waits_for_all_of_them(nmtdeep, whole, served):
    process, port = served
    text = (nmtdeep.folder / "test.en").read_text(encoding="utf-8")
    lines = [*text.splitlines(), *UNUSUAL]
    expected = translated(nmtdeep, lines, "-m", whole, *OPTIONS)
    assert found(port, lines) == expected
    assert [found(port, [line])[0] for line in UNUSUAL] == expected[-3:]
    before = came(port)
    with ThreadPoolExecutor(8) as clients:
        requests = [clients.submit(found, port, lines[first:]) for first in range(8)]
        until(lambda: came(port) == before + 8)
        process.send_signal(signal.SIGTERM)
        for first, request in enumerate(requests):
            assert request.result(60) == expected[first:]
    assert process.wait(30) == 143
    assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


def came(port: int) -> int:
    """Requests that were answered, or are being answered."""
    return json.loads(get(port, "/health").body)["requests"]


def found(port: int, lines: list[str]) -> list[list[str]]:
    """The texts that the service returns for each line."""
    answer = ask(port, json.dumps({"lines": lines}).encode())
    assert answer.status == 200, answer
    return [
        [translation["text"], *(candidate["text"] for candidate in translation["alternatives"])]
        for translation in answer.body["translations"]
    ]


pytestmark = pytest.mark.usefixtures("data")


@pytest.fixture
def service(whole):
    """A real process, to include Python's own exit; one line is answered already."""
    command = ["translate", "-m", str(whole), "-q", "--beam", "1", "--format", "json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "nmtdeep", *command], stdin=pipe, stdout=pipe, stderr=pipe,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
    ) as process:  # fmt: skip
        try:
            put(process, "größe ☃\n".encode())
            assert json.loads(process.stdout.readline())["source"] == "größe ☃"
            yield process
        finally:
            process.kill()


def put(service: subprocess.Popen[bytes], text: bytes) -> None:
    service.stdin.write(text)
    service.stdin.flush()


@pytest.mark.slow
def test_a_signal_while_waiting_for_the_rest_of_a_line(service):
    put(service, b"half a li")
    service.send_signal(signal.SIGINT)
    assert service.wait(30) == 130
    assert (service.stdout.read(), service.stderr.read()) == (b"", b"")


@pytest.mark.slow
def test_a_reader_that_leaves_while_the_writer_stays(service):
    service.stdout.close()
    put(service, b"User\n")
    assert service.wait(30) == 1
    assert service.stderr.read() == b""


@pytest.mark.slow
def test_a_writer_that_leaves_in_the_middle_of_a_line(service):
    put(service, b"User\nhalf a li")
    service.stdin.close()
    assert [line.split(b'"')[5] for line in service.stdout] == [b"User", b"half a li"]
    assert service.wait(30) == 0
    assert service.stderr.read() == b""
