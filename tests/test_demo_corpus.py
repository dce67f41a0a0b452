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


def test_files_are_the_described_ones():
    files = DESCRIPTION["files"]
    assert sorted(files) == sorted(FILES)
    for name, entry in files.items():
        data = (CORPUS / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
        assert len(data) == entry["bytes"]
        assert len(read_lines(CORPUS / name)) == entry["lines"]
        text = gzip.decompress(data) if name.endswith(".gz") else data
        assert hashlib.sha256(text).hexdigest() == entry["text_sha256"]


def test_it_is_small_and_names_its_source(corpus):
    assert {name: len(lines) for name, lines in corpus.items()} == DESCRIPTION["pairs"]
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 1_000_000
    notice = (CORPUS / "NOTICE").read_text("utf-8")
    for words in ("Home Assistant", "2026.11.0", "Apache License, Version 2.0", "Changes made"):
        assert words in notice


# Addresses, markup, entities, keys, unbalanced braces, control characters, stray spaces.
UNWANTED = (
    r"://", r"www\.", r"\.(com|org|net)\b", r"\S+@\S+\.\w", r"[*`|\\\[\]$]", r"</?[A-Za-z{]",
    r"&(amp|lt|gt|quot|nbsp);", r"\]\(", r"%key", r"(?<!\{)\b[a-z]+_[a-z_]+\b(?!\})",
    r"\{(?!\w+\})|(?<!\w)\}", r"[\x00-\x1f\x7f\x85\u00a0\u200b\u2028\u2029\ufeff]",
    r"^\s|\s$|\s\s|^$",
)  # fmt: skip


def test_no_unwanted_text(corpus):
    sides = [side for pairs in corpus.values() for pair in pairs for side in pair]
    for unwanted in map(re.compile, UNWANTED):
        assert [side for side in sides if unwanted.search(side)] == []


def test_sides_fit_together(corpus):
    for source, target in (pair for pairs in corpus.values() for pair in pairs):
        assert len(source.split()) <= 30
        assert len(target.split()) <= 30
        assert bare(source)
        assert bare(target)
        placeholders = [sorted(re.findall(r"\{.*?\}", side)) for side in (source, target)]
        assert placeholders[0] == placeholders[1]
        assert source != target or len(source.split()) <= 2
        shorter, longer = sorted((len(source), len(target)))
        assert longer <= 3 * shorter + 20


def test_no_near_duplicates(corpus):
    for side in (0, 1):
        seen = {name: {bare(pair[side]) for pair in pairs} for name, pairs in corpus.items()}
        for first, second in itertools.combinations(SPLITS, 2):
            assert not seen[first] & seen[second]
    for pairs in corpus.values():
        assert len({bare(source) for source, _ in pairs}) == len(pairs)
