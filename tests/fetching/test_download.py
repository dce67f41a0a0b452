"""A download comes whole or not at all, whatever the server does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from email.message import Message
from pathlib import Path
from urllib.request import Request

import pytest

from fetching.server import Server
from nmtdeep.errors import UserError
from nmtdeep.fetching.download import Patience, RefusedError, WebOnly, download
from nmtdeep.preprocessing.progress import Progress

BODY = random.Random(1).randbytes(300_000)
QUICK = Patience(timeout=0.5, attempts=3, pause=0.001)


def get(path: Path, *urls: str, patience: Patience = QUICK) -> list[str]:
    said: list[str] = []
    download(urls, path, progress=Progress("none"), patience=patience, say=said.append)
    return said


@pytest.fixture
def path(tmp_path: Path, server: Server) -> Path:
    server.files["a.tgz"] = BODY
    return tmp_path / "a.tgz"


def only_the_file(path: Path) -> bool:
    return path.read_bytes() == BODY and list(path.parent.iterdir()) == [path]


def test_a_file_comes_and_nothing_else_stays(server: Server, path: Path) -> None:
    assert get(path, server.url("a.tgz")) == []
    assert only_the_file(path)


def test_a_cut_download_goes_on_where_it_stopped(server: Server, path: Path) -> None:
    server.faults["a.tgz"] = [("cut", 100_000), ("cut", 50_000)]
    get(path, server.url("a.tgz"))
    assert only_the_file(path)
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100000-", "bytes=150000-"]


@pytest.mark.parametrize("cut", [0, 1, 299_999])
def test_the_next_run_goes_on_too(server: Server, path: Path, cut: int) -> None:
    server.faults["a.tgz"] = [("cut", cut), 404]
    with pytest.raises(UserError, match="HTTP 404"):
        get(path, server.url("a.tgz"))
    assert not path.exists()
    get(path, server.url("a.tgz"))
    assert only_the_file(path)
    assert server.asked[-1][1] == (f"bytes={cut}-" if cut else None)


def test_a_server_without_ranges_sends_all_again(server: Server, path: Path) -> None:
    server.ranges = False
    server.faults["a.tgz"] = [("cut", 100_000)]
    get(path, server.url("a.tgz"))
    assert only_the_file(path)


@pytest.mark.parametrize("tags", [True, False])
def test_two_versions_of_a_file_are_not_mixed(server: Server, path: Path, tags: bool) -> None:
    server.tags = tags
    server.files["a.tgz"] = b"older" * 70_000
    server.faults["a.tgz"] = [("cut", 100_000), 404]
    with pytest.raises(UserError):
        get(path, server.url("a.tgz"))
    server.files["a.tgz"] = BODY
    get(path, server.url("a.tgz"))
    assert only_the_file(path)


def test_a_file_that_became_shorter_than_its_part_begins_anew(server: Server, path: Path) -> None:
    server.tags = False
    server.files["a.tgz"] = BODY * 2
    server.faults["a.tgz"] = [("cut", 400_000), 404]
    with pytest.raises(UserError):
        get(path, server.url("a.tgz"))
    server.files["a.tgz"] = BODY
    get(path, server.url("a.tgz"))
    assert only_the_file(path)


def test_a_part_that_was_whole_when_the_program_died_is_taken(server: Server, path: Path) -> None:
    server.faults["a.tgz"] = [("cut", 299_999), 404]
    with pytest.raises(UserError):
        get(path, server.url("a.tgz"))
    with path.with_name("a.tgz.part").open("ab") as part:
        part.write(BODY[299_999:])
    get(path, server.url("a.tgz"))
    assert only_the_file(path)
    assert len(server.asked) == 2


def test_the_part_of_another_address_is_not_used(server: Server, path: Path) -> None:
    server.tags = False
    server.files["b.tgz"] = bytes(300_000)
    server.faults["b.tgz"] = [("cut", 1000), 404]
    get(path, server.url("b.tgz"), server.url("a.tgz"))
    assert only_the_file(path)


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_an_error_that_may_pass_is_tried_again(server: Server, path: Path, status: int) -> None:
    server.faults["a.tgz"] = [status, status]
    said = get(path, server.url("a.tgz"))
    assert only_the_file(path)
    assert [f"HTTP {status}" in line for line in said] == [True, True]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_an_error_that_stays_is_told_at_once(server: Server, path: Path, status: int) -> None:
    server.faults["a.tgz"] = [status]
    with pytest.raises(UserError, match=rf"a\.tgz.*HTTP {status}.*by hand.*--from"):
        get(path, server.url("a.tgz"))
    assert len(server.asked) == 1


def test_attempts_without_a_new_byte_come_to_an_end(server: Server, path: Path) -> None:
    server.faults["a.tgz"] = [500] * 10
    with pytest.raises(UserError, match="3 attempts"):
        get(path, server.url("a.tgz"))
    assert len(server.asked) == 3


def test_a_slow_line_that_moves_is_not_given_up(server: Server, path: Path) -> None:
    server.faults["a.tgz"] = [("cut", 10_000)] * 10
    get(path, server.url("a.tgz"))
    assert only_the_file(path)
    assert len(server.asked) == 11


def test_a_server_that_hangs_is_left(server: Server, path: Path) -> None:
    server.faults["a.tgz"] = ["hang"]
    began = time.monotonic()
    get(path, server.url("a.tgz"))
    assert only_the_file(path)
    assert time.monotonic() - began < 5


def test_redirects_are_followed_and_loops_are_left(server: Server, path: Path) -> None:
    server.faults["old"] = [("to", server.url("older")), *[("to", server.url("old"))] * 50]
    server.faults["older"] = [("to", server.url("a.tgz"))]
    get(path, server.url("old"))
    assert only_the_file(path)
    with pytest.raises(UserError, match="redirect"):
        get(path.with_name("b"), server.url("old"))


@pytest.mark.parametrize("scheme", ["file", "ftp"])
def test_a_redirect_to_anything_but_the_web_is_refused(
    server: Server, path: Path, scheme: str
) -> None:
    secret = path.with_name("secret")
    secret.write_text("mine")
    server.faults["old"] = [("to", f"{scheme}://127.0.0.1{secret}")]
    with pytest.raises(UserError, match=f"302|sent on to {scheme}:"):
        get(path, server.url("old"))
    assert not path.exists()


def test_a_redirect_from_https_stays_there() -> None:
    request = Request("https://a/x")
    followed = WebOnly().redirect_request(request, None, 302, "", Message(), "https://b/x")
    assert followed is not None
    assert followed.full_url == "https://b/x"
    with pytest.raises(RefusedError, match="http://b/x"):
        WebOnly().redirect_request(request, None, 302, "", Message(), "http://b/x")


def test_a_page_for_a_browser_is_no_archive(server: Server, path: Path) -> None:
    server.faults["a.tgz"] = ["html"]
    with pytest.raises(UserError, match="a page for a browser came"):
        get(path, server.url("a.tgz"))
    assert list(path.parent.iterdir()) == []


def test_the_next_address_is_tried(server: Server, path: Path) -> None:
    get(path, server.url("gone"), server.url("a.tgz"))
    assert only_the_file(path)


def test_every_address_is_named_if_none_works(server: Server, path: Path) -> None:
    with pytest.raises(UserError, match=r"/gone \(HTTP 404.*/lost \(HTTP 404"):
        get(path, server.url("gone"), server.url("lost"))


def test_no_server_is_told_with_its_reason(path: Path) -> None:
    with pytest.raises(UserError, match="refused"):
        get(path, "http://127.0.0.1:9/a.tgz")


def test_a_file_of_unknown_length_ends_where_the_server_says(server: Server, path: Path) -> None:
    server.lengths = False
    get(path, server.url("a.tgz"))
    assert only_the_file(path)


SCRIPT = """
import sys
from pathlib import Path
from nmtdeep.fetching.download import Patience, download
from nmtdeep.preprocessing.progress import Progress
download([sys.argv[1]], Path(sys.argv[2]), progress=Progress(), patience=Patience(), say=print)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interruption_leaves_the_part_for_the_next_time(
    server: Server, path: Path, number: int
) -> None:
    server.files["a.tgz"] = BODY * 20
    server.faults["a.tgz"] = [("cut", 4_000_000), "hang"]
    command = [sys.executable, "-c", SCRIPT, server.url("a.tgz"), str(path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
        while len(server.asked) < 2:
            assert child.poll() is None
            time.sleep(0.01)
        os.kill(child.pid, number)
    get(path, server.url("a.tgz"))
    assert path.read_bytes() == BODY * 20
    assert server.asked[-1] == ("a.tgz", "bytes=4000000-")
