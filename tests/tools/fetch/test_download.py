"""A download is complete or absent, whatever the server does."""

import random
from email.message import Message
from pathlib import Path
from urllib.request import Request

import pytest

from nmtdeep.errors import UserError
from nmtdeep.preprocessing.progress import ProgressBar
from nmtdeep.tools.fetch.download import DownloadRefusedError, Retry, WebOnly, download

BODY = random.Random(1).randbytes(300_000)
QUICK = Retry(timeout=0.5, attempts=3, pause=0.001)


def get(path: Path, *urls: str) -> list[str]:
    lines: list[str] = []
    download(urls, path, progress=ProgressBar("none"), retry=QUICK, say=lines.append)
    return lines


@pytest.fixture
def path(tmp_path, server):
    server.files["a.tgz"] = BODY
    return tmp_path / "a.tgz"


@pytest.mark.parametrize("lengths", [True, False])
def test_a_file_arrives_and_nothing_else_stays(server, path, lengths):
    server.lengths = lengths
    assert get(path, server.url("a.tgz")) == []
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (503, "HTTP 503"),
        (429, "HTTP 429"),
        (("cut", 299_999), "ended early"),
        ("hang", "timed out"),
    ],
)
def test_a_temporary_failure_is_retried(server, path, fault, reason):
    server.faults["a.tgz"] = [fault, fault]
    lines = get(path, server.url("a.tgz"))
    assert path.read_bytes() == BODY
    assert [reason in line for line in lines] == [True, True]


@pytest.mark.parametrize(("status", "requests"), [(403, 1), (404, 1), (500, 3)])
def test_a_permanent_error_is_reported_at_once_and_a_temporary_one_after_three_attempts(
    server, path, status, requests
):
    server.faults["a.tgz"] = [status] * 10
    with pytest.raises(UserError, match=rf"a\.tgz: .*{status}.*by hand.*--from"):
        get(path, server.url("a.tgz"))
    assert len(server.requests) == requests


def test_redirects_are_followed_but_not_in_a_loop(server, path):
    server.faults["old"] = [("to", server.url("older")), *[("to", server.url("old"))] * 50]
    server.faults["older"] = [("to", server.url("a.tgz"))]
    get(path, server.url("old"))
    assert path.read_bytes() == BODY
    with pytest.raises(UserError, match="redirect"):
        get(path.with_name("b"), server.url("old"))


def test_a_redirect_to_anything_but_the_web_is_refused(server, path):
    secret = path.with_name("secret")
    secret.write_text("mine")
    server.faults["old"] = [("to", f"file://127.0.0.1{secret}")]
    with pytest.raises(UserError, match=r"302|redirected to file:"):
        get(path, server.url("old"))
    assert not path.exists()


def test_a_redirect_from_https_must_stay_on_https():
    request = Request("https://a/x")
    followed = WebOnly().redirect_request(request, None, 302, "", Message(), "https://b/x")
    assert followed is not None
    assert followed.full_url == "https://b/x"
    with pytest.raises(DownloadRefusedError, match="http://b/x"):
        WebOnly().redirect_request(request, None, 302, "", Message(), "http://b/x")


def test_a_web_page_is_not_an_archive(server, path):
    server.faults["a.tgz"] = ["html"]
    with pytest.raises(UserError, match="sent a web page"):
        get(path, server.url("a.tgz"))
    assert list(path.parent.iterdir()) == []


def test_the_next_address_is_tried_and_every_failure_is_listed(server, path):
    get(path, server.url("gone"), server.url("a.tgz"))
    assert path.read_bytes() == BODY
    with pytest.raises(UserError, match=r"(?s)/gone: HTTP 404.*/lost: HTTP 404.*refused"):
        get(path, server.url("gone"), server.url("lost"), "http://127.0.0.1:9/a.tgz")
