"""Signals that arrive where Python drops exceptions."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator

import pytest

from nmtdeep.cli.main import reraise_signal


class Dropped:
    """Its destructor raises."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __del__(self) -> None:
        raise self.error


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises, also where this process was started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_a_destructor_is_not_lost(ctrl_c, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", reraise_signal)
    with pytest.raises(KeyboardInterrupt):
        Dropped(KeyboardInterrupt)
        time.sleep(10)


def test_other_errors_in_a_destructor_are_shown(monkeypatch, capsys):
    monkeypatch.setattr(sys, "unraisablehook", reraise_signal)
    Dropped(ValueError)
    assert "ValueError" in capsys.readouterr().err
