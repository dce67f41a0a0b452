"""`translate` as a service between two pipes: it always ends without a traceback."""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("data")


@pytest.fixture
def service(whole):
    """A real process, to include Python's own exit; one line is answered already."""
    command = ["translate", "-m", str(whole), "-q", "--beam", "1", "--format", "json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "nmtdeep", *command], stdin=pipe, stdout=pipe, stderr=pipe
    ) as process:
        try:
            put(process, b"Password\n")
            assert process.stdout.readline().startswith(b'{"line": 1, "source": "Password"')
            yield process
        finally:
            process.kill()


def put(service: subprocess.Popen[bytes], text: bytes) -> None:
    service.stdin.write(text)
    service.stdin.flush()


def test_a_signal_while_waiting_for_the_rest_of_a_line(service):
    put(service, b"half a li")
    service.send_signal(signal.SIGINT)
    assert service.wait(30) == 130
    assert (service.stdout.read(), service.stderr.read()) == (b"", b"")


def test_a_reader_that_leaves_while_the_writer_stays(service):
    service.stdout.close()
    put(service, b"User\n")
    assert service.wait(30) == 1
    assert service.stderr.read() == b""


def test_a_writer_that_leaves_in_the_middle_of_a_line(service):
    put(service, b"User\nhalf a li")
    service.stdin.close()
    assert [line.split(b'"')[5] for line in service.stdout] == [b"User", b"half a li"]
    assert service.wait(30) == 0
    assert service.stderr.read() == b""
