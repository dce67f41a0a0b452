"""The shipped demo corpus has what its description promises."""

import gzip
import hashlib
import itertools
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "nmtdeep" / "demo" / "corpus"
DESCRIPTION = json.loads((CORPUS / "corpus.json").read_text("utf-8"))
SPLITS = ("train", "dev", "test")
LANGUAGES = ("en", "de")
FILES = ["train.en.gz", "train.de.gz", "dev.en", "dev.de", "test.en", "test.de"]


def read_lines(path: Path) -> list[str]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def read_split(name: str) -> list[tuple[str, str]]:
    suffix = ".gz" if name == "train" else ""
    sides = [read_lines(CORPUS / f"{name}.{language}{suffix}") for language in LANGUAGES]
    return list(zip(*sides, strict=True))


def bare(text: str) -> str:
    """Spell out the letters a to z, umlauts and so on, of a string without its placeholders."""
    text = re.sub(r"%\(\w+\)[sd]|%[sd](?!\w)|\{[^{}]*\}", "", text.lower())
    return "".join(re.findall(r"[^\W\d_]", text))


@pytest.fixture(scope="module")
def corpus():
    return {name: read_split(name) for name in SPLITS}


def test_files_are_the_described_ones(corpus):
    files = DESCRIPTION["files"]
    assert sorted(files) == sorted(FILES)
    for name, entry in files.items():
        data = (CORPUS / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
        assert len(read_lines(CORPUS / name)) == entry["lines"]
    assert {name: len(lines) for name, lines in corpus.items()} == DESCRIPTION["pairs"]
    assert "Apache License, Version 2.0" in (CORPUS / "NOTICE").read_text("utf-8")


def test_no_near_duplicates(corpus):
    for side in (0, 1):
        seen = {name: {bare(pair[side]) for pair in pairs} for name, pairs in corpus.items()}
        for first, second in itertools.combinations(SPLITS, 2):
            assert not seen[first] & seen[second]
    for pairs in corpus.values():
        assert len({bare(source) for source, _ in pairs}) == len(pairs)
