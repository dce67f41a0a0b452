"""Lines that break programs through preprocess, translate and score: N in, N out."""

from pathlib import Path

import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.decoding.streams import Destination, check, translate, writer

# A megabyte in one word; a hundred thousand words; and characters that are not letters.
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


@pytest.mark.slow
def test_preprocessing_accounts_for_every_line(make_data, tmp_path):
    recipe = Recipe.model_validate({"text": {"bpe": {"type": "joint", "merges": 300}}})
    pairs = [(line, line) for line in LINES]
    data = make_data(tmp_path, recipe, pairs, pairs)
    assert data.sources("valid") == LINES
    assert len(data.corpus("valid")) == len(LINES)
    report = data.index["report"]["splits"]["train"]
    dropped = {name: reason["examples"] for name, reason in report["reasons"].items()}
    assert dropped == {
        "source longer than 250 subwords": [1, 2],
        "source is empty": [9],
    }
    assert (report["read"], report["kept"]) == (10, 7)


def test_as_many_translations_as_lines(tmp_path, translator):
    source, out = str(tmp_path / "in"), str(tmp_path / "out")
    Path(source).write_bytes("".join(f"{line}\n" for line in LINES).encode())
    assert check(source, out) == len(LINES)
    model = translator(beam=1, long_lines="truncate", max_source_tokens=20)
    with writer(out) as write:
        count = translate(model, source, Destination(write, "text"))
    assert count == Path(out).read_bytes().count(b"\n") == len(LINES)
    assert Path(out).read_text(encoding="utf-8").split("\n")[8] == ""
