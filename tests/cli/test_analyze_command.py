"""Pictures need matplotlib, which not every installation has."""

import sys

import pytest
from typer.testing import CliRunner

from nmtdeep.cli.main import app


def test_a_picture_without_matplotlib_is_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ["analyze", "gradients", "demo", "--data", "absent", "--plot", "curves.svg"]
    error = str(CliRunner().invoke(app, words).exception)
    assert "needs matplotlib" in error and "leave --plot out" in error
