"""Pictures need matplotlib, which not every installation has."""

import sys
from pathlib import Path

import pytest

from nmtdeep.cli.analyze import gradients
from nmtdeep.errors import UserError


def test_a_picture_without_matplotlib_is_refused_before_any_work(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"needs matplotlib.*leave --plot out"):
        gradients(
            subjects=["demo"],
            data=Path("absent"),
            csv=None,
            plot=Path("curves.svg"),
            as_json=False,
        )
