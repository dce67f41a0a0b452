"""Starting the service: unavailable addresses, hosts that it answers."""

import socket
from pathlib import Path
from typing import Any

import pytest

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import UserError
from nmtdeep.tools.serve import ServiceOptions, application
from nmtdeep.tools.serve.server import serve


def start(**options: Any) -> None:
    service = ServiceOptions(**({"port": 0} | options))
    serve([Path("no-run")], DecodingOptions(), service, announce=print)


def test_an_unavailable_address_is_an_error_before_a_model_is_read():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port}: cannot listen: Address already in use"):
            start(port=port)
    with pytest.raises(UserError, match=r"^192\.0\.2\.1, port 0: cannot listen: .*: choose"):
        start(host="192.0.2.1")
    with pytest.raises(UserError, match=r"^x+, port 0: cannot listen: .*: choose"):
        start(host="x" * 300)


@pytest.mark.parametrize(
    ("host", "allowed", "expected"),
    [
        ("127.0.0.1", [], {"127.0.0.1"}),
        ("localhost", ["proxy.example"], {"localhost", "127.0.0.1", "proxy.example"}),
        ("0.0.0.0", [], None),
        ("0.0.0.0", ["mt.example"], {"0.0.0.0", "mt.example"}),
    ],
)
def test_hosts_are_checked_on_loopback_and_on_request(monkeypatch, host, allowed, expected):
    seen: list[Any] = []

    def made(_: Any, __: Any, hosts: Any) -> Any:
        seen.append(hosts and set(hosts))
        raise InterruptedError

    monkeypatch.setattr(application, "application", made)
    monkeypatch.setattr(Translator, "load", lambda *_: None)
    with pytest.raises(InterruptedError):
        start(host=host, allow_host=allowed)
    assert seen == [expected]
