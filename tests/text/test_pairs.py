"""Parallel text in every form is the same pairs; every broken line is named."""

import gzip
import json
import os
from pathlib import Path

import pytest

from nmtdeep.errors import DataError, UserError
from nmtdeep.text.pairs import find_text, name_of

LANGUAGES = ("en", "pt-BR")
PAIRS = [("A cat.", "Um gato."), ("", "b"), ("a\u2028b", 'c "d" \\'), ("x\x85y", "猫")]


def packed(content, ending):
    if ending == ".zst":
        return pytest.importorskip("backports.zstd").compress(content)
    return gzip.compress(content) if ending == ".gz" else content


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_forms_of_the_same_pairs(tmp_path, ending):
    def jsonl(record):
        return "".join(json.dumps(record(*pair), ensure_ascii=False) + "\n" for pair in PAIRS)

    texts = {
        "two.en": "".join(f"{source}\n" for source, _ in PAIRS),
        "two.pt-BR": "".join(f"{target}\n" for _, target in PAIRS),
        "tab.tsv": "".join(f"{source}\t{target}\r\n" for source, target in PAIRS),
        "by-language.jsonl": jsonl(lambda a, b: {"pt-BR": b, "en": a, "score": 1}),
        "by-side.jsonl": jsonl(lambda a, b: {"source": a, "target": b}),
        "nested.jsonl": jsonl(lambda a, b: {"id": 7, "translation": {"en": a, "pt-BR": b}}),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}{ending}").write_bytes(packed(text.encode(), ending))
    prefixes = [f"{name}{ending}" for name in texts if name.rpartition(".")[2] in ("tsv", "jsonl")]
    for prefix in ("two", *prefixes):
        assert list(find_text(tmp_path / prefix, LANGUAGES).pairs()) == PAIRS


def test_names_of_splits():
    names = {"a/news.2013": "news.2013", "a/web.tsv": "web", "b.x.jsonl.zst": "b.x", "c.gz": "c.gz"}
    assert {path: name_of(Path(path)) for path in names} == names


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.tsv", "one"),
        ("a.tsv", "one\ttwo\tthree"),
        ("a.jsonl", "[" * 100_000),
        ("a.jsonl", '{"source": "a", "target": 3}'),
        ("a.jsonl", '{"en": "a\\nb", "pt-BR": "c"}'),
        ("a.jsonl", '{"en": "\\ud800", "pt-BR": "c"}'),
    ],
)
def test_a_broken_line_is_named(tmp_path, name, line):
    good = "a\tb" if name == "a.tsv" else '{"en": "a", "pt-BR": "b"}'
    (tmp_path / name).write_text(f"{good}\n{line}\n", "utf-8")
    with pytest.raises(DataError) as caught:
        list(find_text(tmp_path / name, LANGUAGES).pairs())
    assert caught.value.problems[0].where == f"{tmp_path / name}:2"


def test_a_side_that_ends_before_the_other_is_none(tmp_path):
    (tmp_path / "a.en").write_text("1\n2\n")
    (tmp_path / "a.pt-BR").write_text("1\n")
    assert list(find_text(tmp_path / "a", LANGUAGES).pairs()) == [("1", "1"), ("2", None)]


def test_damaged_zstd_is_one_clear_error(tmp_path):
    zstd = pytest.importorskip("backports.zstd")
    whole = zstd.compress(b"a\tb\n" * 1000)
    for content in (whole[:-5], b"plain text", b""):
        (tmp_path / "a.tsv.zst").write_bytes(content)
        with pytest.raises(DataError, match=r"a\.tsv\.zst: damaged or truncated zstd file"):
            list(find_text(tmp_path / "a.tsv.zst", LANGUAGES).pairs())


def test_half_a_character_in_json_is_dropped_as_other_bad_encodings(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"en": "a", "pt-BR": "b"}\n{"en": "\\ud800", "pt-BR": "b"}\n')
    with pytest.raises(DataError, match=":2: "):
        list(find_text(path, LANGUAGES, "error").pairs())
    assert list(find_text(path, LANGUAGES, "drop").pairs()) == [("a", "b"), ("", "")]


@pytest.mark.parametrize("name", ["a.tsv", "a.en"])
def test_a_pipe_is_refused_at_once(tmp_path, name):
    for each in ("a.en", "a.pt-BR"):
        (tmp_path / each).touch()
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=f"{name}: a pipe"):
        find_text(tmp_path / name.removesuffix(".en"), LANGUAGES)
