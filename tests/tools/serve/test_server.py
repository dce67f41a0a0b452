"""Starting the service: unavailable addresses, contradicting limits; its load."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import UserError
from nmtdeep.tools.serve import ServiceOptions, application
from nmtdeep.tools.serve.server import serve

from .stand_ins import Shouter, service


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


def test_the_load_generator_counts_answers(tmp_path):
    text = tmp_path / "text.en"
    text.write_text("".join(f"line {number}\n" for number in range(50)), encoding="utf-8")
    shouter = Shouter()
    with service(shouter, batch_lines=16, max_lines=4, max_queue=16) as port:
        done = subprocess.run(
            [sys.executable, ROOT / "scripts/load_service.py", "--url", f"http://127.0.0.1:{port}",
             "--text", text, "--clients", "6", "--seconds", "0.5", "--lines", "1", "4"],
            check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    _, lines = re.match(r"([\d,]+) requests, ([\d,]+) lines", done.stdout).groups()
    assert int(lines.replace(",", "")) == sum(map(len, shouter.chunks))
    assert "\n0 requests lost" in done.stdout
