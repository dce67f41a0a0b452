"""A translator over the tiny run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmtdeep.checkpoint import load
from nmtdeep.decoding.settings import settings_of
from nmtdeep.decoding.translator import Translator


@pytest.fixture(scope="session")
def translator(tiny_run: Any) -> Callable[..., Translator]:
    """`translator(beam=5, ...)` of the newer checkpoint, or of the `paths` given."""

    def make(*paths: Path, **changes: Any) -> Translator:
        loaded = [load(path) for path in paths or (tiny_run.newer,)]
        settings = replace(settings_of(loaded[0]), **changes)
        return Translator.of(loaded, settings, device="cpu")

    return make
