"""Signals that come where Python drops exceptions."""

from __future__ import annotations

import sys
import time

import pytest

from nmtdeep.cli.main import reraise_signal


class Dropped:
    """Its destructor raises."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __del__(self) -> None:
        raise self.error


def test_ctrl_c_in_a_destructor_is_heard(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", reraise_signal)
    with pytest.raises(KeyboardInterrupt):
        Dropped(KeyboardInterrupt)
        time.sleep(10)


def test_other_errors_in_a_destructor_are_shown(monkeypatch, capsys):
    monkeypatch.setattr(sys, "unraisablehook", reraise_signal)
    Dropped(ValueError)
    assert "ValueError" in capsys.readouterr().err
