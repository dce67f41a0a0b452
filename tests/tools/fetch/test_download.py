"""A download is complete or absent, whatever the server does."""

import random
from email.message import Message
from pathlib import Path
from urllib.request import Request

import pytest

from nmtdeep.errors import UserError
from nmtdeep.preprocessing.progress import ProgressBar
from nmtdeep.tools.fetch.download import WebOnly, download

BODY = random.Random(1).randbytes(300_000)


def get(path: Path, *urls: str) -> str:
    return download(urls, path, progress=ProgressBar("none"), timeout=0.5)


@pytest.fixture
def path(tmp_path, server):
    server.files["a.tgz"] = BODY
    return tmp_path / "a.tgz"


@pytest.mark.parametrize("lengths", [True, False])
def test_a_file_arrives_and_nothing_else_stays(server, path, lengths):
    server.lengths = lengths
    get(path, server.url("a.tgz"))
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (403, "HTTP 403"),
        (503, "HTTP 503"),
        (("cut", 299_999), "ended early"),
        ("hang", "timed out"),
        ("html", "sent a web page"),
    ],
)
def test_a_failure_is_reported_with_what_to_do(server, path, fault, reason):
    server.faults["a.tgz"] = [fault]
    with pytest.raises(UserError, match=rf"a\.tgz: .*{reason}.*by hand.*--from"):
        get(path, server.url("a.tgz"))
    assert len(server.requests) == 1
    assert get(path, server.url("a.tgz")) == server.url("a.tgz")  # replaces what came
    assert path.read_bytes() == BODY


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
    with pytest.raises(ConnectionError, match="http://b/x"):
        WebOnly().redirect_request(request, None, 302, "", Message(), "http://b/x")


def test_the_next_address_is_tried_and_every_failure_is_listed(server, path):
    get(path, server.url("gone"), server.url("a.tgz"))
    assert path.read_bytes() == BODY
    with pytest.raises(UserError, match=r"(?s)/gone: HTTP 404.*/lost: HTTP 404.*refused"):
        get(path, server.url("gone"), server.url("lost"), "http://127.0.0.1:9/a.tgz")
