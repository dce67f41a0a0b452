"""A translator over the tiny run."""

from pathlib import Path
from typing import Any

import pytest

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.translator import Translator


@pytest.fixture(scope="session")
def translator(tiny_run):
    """`translator(beam=5, ...)` of the newer checkpoint, or of the `paths` given."""

    def make(*paths: Path, **options: Any) -> Translator:
        return Translator.load(paths or [tiny_run.newer], DecodingOptions(device="cpu", **options))

    return make
