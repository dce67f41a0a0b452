"""Before the service answers: what is missing, taken, or does not go together; and its load."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from pages import ROOT

from nmtdeep.cli.main import app
from nmtdeep.decoding.opening import Options
from nmtdeep.errors import UserError
from nmtdeep.serving.messages import Limits
from nmtdeep.serving.procedure import serve
from serving.stand_ins import Shouter, service


def start(host: str = "127.0.0.1", port: int = 0) -> None:
    limits = Limits()
    where = {"host": host, "port": port}
    serve([Path("no-run")], Options(), **where, at_once=1, patience=0.0, limits=limits, grace=1,
          announce=print)  # fmt: skip


@pytest.mark.parametrize("missing", ["fastapi", "prometheus_client", "uvicorn"])
def test_a_missing_package_is_named_with_its_extra(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("application", "figures"):
        monkeypatch.delitem(sys.modules, f"nmtdeep.serving.{name}", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=rf"{missing}.*pip install \"nmtdeep\[serve\]\""):
        start()


def test_an_address_that_cannot_be_had_is_said_before_a_model_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port}: Address already in use: choose"):
            start(port=port)
    with pytest.raises(UserError, match=r"cannot listen at 192\.0\.2\.1, port 0: .*: choose"):
        start(host="192.0.2.1")
    with pytest.raises(UserError, match=r"cannot listen at x+, port 0: .*: choose"):
        start(host="x" * 300)


def test_a_request_that_is_allowed_has_room_in_the_queue() -> None:
    with pytest.raises(UserError, match="give a larger queue or fewer lines"):
        Limits(lines=10, queue=9)


def test_the_command_and_the_procedure_have_the_same_limits() -> None:
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    options = {one.name: one.default for one in command.params}
    limits = dataclasses.asdict(Limits())
    del limits["body_seconds"]
    assert {name: options[f"max_{name}"] for name in limits} == limits


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--lines", "5", "6"), 1)])
def test_the_load_counts_what_came_back(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    text = tmp_path / "text.en"
    text.write_text("".join(f"line {number}\n" for number in range(50)), encoding="utf-8")
    shouter = Shouter()
    with service(shouter, at_once=16, lines=4, queue=16) as port:
        done = subprocess.run(
            [sys.executable, ROOT / "scripts/load_service.py", "--url", f"http://127.0.0.1:{port}",
             "--text", text, "--clients", "6", "--seconds", "0.5", "--lines", "1", "4", *words],
            check=False, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    requests, lines = re.match(r"([\d,]+) requests, ([\d,]+) lines", done.stdout).groups()
    assert int(lines.replace(",", "")) == sum(map(len, shouter.chunks))
    assert ("\n0 requests lost" in done.stdout) == (code == 0)
    assert (requests == "0") == (code == 1)
