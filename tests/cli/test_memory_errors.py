"""Memory that runs out where nobody can divide the work."""

from __future__ import annotations

import signal
import sys

import pytest

from nmtdeep.cli import main


@pytest.fixture
def failing(monkeypatch):
    """A command that ends in an error of these words."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(main, "keep_memory", lambda: None)
    before = signal.getsignal(signal.SIGTERM)

    def fail(words: str) -> None:
        def app(**_: object) -> None:
            raise RuntimeError(words)

        monkeypatch.setattr(main, "app", app)
        main.run()

    yield fail
    signal.signal(signal.SIGTERM, before)


def test_memory_that_runs_out_is_one_line(failing, capsys):
    with pytest.raises(SystemExit) as ended:
        failing("could not create a primitive")  # oneDNN's words
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("nmtdeep: error: out of memory") and said.count("\n") == 1


def test_another_error_is_not_hidden(failing):
    with pytest.raises(RuntimeError, match="shapes"):
        failing("shapes do not match")
