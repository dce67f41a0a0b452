"""Lines that break programs through preprocess, translate and score: N in, N out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.decoding.streams import check, translate, writer
from nmtdeep.preprocessing.preprocess import preprocess
from nmtdeep.preprocessing.progress import Progress

# A megabyte in one word; a hundred thousand words; and what is no letter.
LINES = [
    "x" * 1_000_000,
    "a cat " * 50_000,
    "\u0301\u0308" * 500,
    "שלום \u202e مرحبا",
    "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 🇩🇪",
    "a\0b \0",
    "one\u2028line\u2029only\x85\x0b\x0c\x1c",
    "\ufeffmark",
    "",
    "A dog.",
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    for language in ("en", "de"):
        (tmp_path / f"text.{language}").write_bytes("".join(f"{one}\n" for one in LINES).encode())
    return tmp_path / "text"


def test_preprocessing_accounts_for_every_line(text: Path, tmp_path: Path) -> None:
    recipe = Recipe.model_validate({"text": {"bpe": {"type": "joint", "merges": 300}}})
    out = tmp_path / "data"
    preprocess(recipe, train=text, valid=text, out=out, progress=Progress("none"))
    data = DataDirectory.open(out)
    assert data.sources("valid") == LINES
    assert len(data.corpus("valid")) == len(LINES)
    report = data.index["report"]["splits"]["train"]
    dropped = {name: reason["examples"] for name, reason in report["reasons"].items()}
    assert dropped == {
        "source longer than 250 subwords": [1, 2, 3],
        "source is empty": [9],
    }
    assert (report["read"], report["kept"]) == (10, 6)


def test_as_many_translations_as_lines(text: Path, tmp_path: Path, translator: Any) -> None:
    out = str(tmp_path / "out")
    source = f"{text}.en"
    assert check(source, out) == len(LINES)
    made = translator(beam=1, long_lines="truncate", max_source_tokens=20)
    with writer(out) as write:
        count = translate(made, source, write, form="text")
    assert count == Path(out).read_bytes().count(b"\n") == len(LINES)
    assert Path(out).read_text(encoding="utf-8").split("\n")[8] == ""
