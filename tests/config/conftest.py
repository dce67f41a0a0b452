"""A current directory for each test of the loader."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory, so that messages show short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
