"""Lines in and out: files in fixed chunks, pipes as they come, each output format read back."""

import gzip
import json
import os
import sys
import threading
from pathlib import Path

import pytest

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.resuming import resume_point
from nmtdeep.decoding.streams import Destination, read_chunks, render, translate, writer
from nmtdeep.decoding.translation import Candidate, Translation
from nmtdeep.errors import UserError

FOUND = Translation(
    "Zwei\u2028 Katzen",
    ("zwei", "kat@@", "zen"),
    (
        Candidate("Two cats.", "Two cats .", ("Two", "ca@@", "ts", "."), -4.5, -1.25, (-1.5, -3.0)),
        Candidate('A "cat"', "A cat", ("A", "cat"), -6.0, -2.0, (-6.0,)),
    ),
)
TWO = DecodingOptions(n_best=2)
ONE = Translation(FOUND.source, FOUND.subwords, FOUND.candidates[:1])


# Reading


def write(path, lines):
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def test_a_file_comes_in_chunks_of_one_size(tmp_path, monkeypatch):
    lines = [str(number) for number in range(7)]
    path = str(write(tmp_path / "in", lines))
    assert list(read_chunks(path, size=3)) == [lines[:3], lines[3:6], lines[6:]]
    with Path(path).open(encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert list(read_chunks("-", size=3)) == [lines[:3], lines[3:6], lines[6:]]
    write(tmp_path / "in", lines[:6])
    assert list(read_chunks(path, size=3, first=2)) == [lines[2:5], lines[5:6]]
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"a\nb"))
    assert list(read_chunks(str(tmp_path / "in.gz"))) == [["a", "b"]]


@pytest.fixture
def pipe(monkeypatch):
    """The writing end of a pipe that stdin reads."""
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as file, open(writing, "wb") as end:  # noqa: PTH123
        monkeypatch.setattr("sys.stdin", file)
        yield end


@pytest.mark.parametrize("name", ["-", "/dev/fd"])
def test_a_pipe_is_answered_before_it_ends(pipe, name):
    arriving = read_chunks(name if name == "-" else f"{name}/{sys.stdin.fileno()}")
    for line in ("one", "two\u2028"):
        pipe.write(f"{line}\n".encode())
        pipe.flush()
        assert next(arriving) == [line]
    pipe.write(b"three\nfour")
    pipe.close()
    assert next(arriving) == ["three", "four"]
    assert list(arriving) == []


def test_long_lines_make_smaller_chunks(translator, tiny_run, tmp_path, pipe):
    """At most 8 million characters: in a file, in a pipe, and when a file is resumed."""
    lines = [tiny_run.sources[0], *[" " * 1_000_000] * 8, *tiny_run.sources[1:3]]
    path = write(tmp_path / "in", lines)
    model, out = translator(beam=1), tmp_path / "out"
    written: list[str] = []
    assert translate(model, str(path), Destination(written.append, "text")) == 11
    assert [part.count("\n") for part in written] == [9, 2]
    texts = [each.text for each in model.translate_chunk(lines)]
    assert "".join(written) == "".join(f"{text}\n" for text in texts)
    assert [each.text for each in model.translate(lines)] == texts
    out.write_text("".join(written)[:-1])
    point = resume_point(str(path), str(out), form="text", options=model.options)
    assert (point.lines, point.first, point.start) == (10, 9, len(written[0].encode()))
    feeder = threading.Thread(target=lambda: (pipe.write(path.read_bytes()), pipe.close()))
    feeder.start()
    received = list(read_chunks("-"))
    feeder.join()
    assert [line for chunk in received for line in chunk] == lines
    assert max(sum(map(len, chunk)) for chunk in received) <= 9_000_000


def test_a_pipe_that_is_not_utf_8_is_an_error(pipe):
    pipe.write(b"good\n\xff\n")
    pipe.close()
    with pytest.raises(UserError, match=":2: not valid UTF-8"):
        list(read_chunks("-"))


# Writing


def test_json_holds_every_field(tiny_run):
    line = render(FOUND, 4, "json", TWO)
    assert line.endswith("\n")
    record = json.loads(line)
    assert (record["line"], record["source"]) == (5, "Zwei\u2028 Katzen")
    assert record["translations"] == [
        {
            "text": candidate.text,
            "tokenized": candidate.tokenized,
            "subwords": list(candidate.subwords),
            "score": candidate.score,
            "log_prob": candidate.log_prob,
        }
        for candidate in FOUND.candidates
    ]


def test_tsv_has_five_columns():
    rows = [
        line.split("\t")
        for line in render(FOUND, 4, "tsv", DecodingOptions(output_is="tokenized")).split("\n")[:-1]
    ]
    assert rows == [
        ["5", "1", "-1.250000", "-4.500000", "Two cats ."],
        ["5", "2", "-2.000000", "-6.000000", "A cat"],
    ]


def test_lines_of_fairseq():
    assert render(ONE, 4, "fairseq", DecodingOptions()).split("\n") == [
        "S-4\tzwei kat@@ zen",
        "H-4\t-1.8033688011112043\tTwo ca@@ ts .",  # -1.25 / ln 2
        "D-4\t-1.8033688011112043\tTwo cats.",
        "P-4\t-2.1640 -4.3281",
        "",
    ]
    kinds = [line[:4] for line in render(FOUND, 4, "fairseq", TWO).splitlines()]
    assert kinds == ["S-4\t", *["H-4\t", "D-4\t", "P-4\t"] * 2]


@pytest.mark.parametrize(
    ("form", "expected"),
    [("raw", "Two cats."), ("tokenized", "Two cats ."), ("bpe", "Two ca@@ ts .")],
)
def test_text_is_one_line(form, expected):
    assert render(ONE, 4, "text", DecodingOptions(output_is=form)) == f"{expected}\n"
    two = DecodingOptions(output_is=form, n_best=2)
    first, second = render(FOUND, 4, "text", two).splitlines()
    assert render(ONE, 4, "text", two) == f"{first}\n", "one of two candidates was found"
    assert first == f"4 ||| {expected} ||| -1.250000"
    assert second.endswith("||| -2.000000")


def test_a_gz_file_is_compressed_and_a_missing_folder_is_an_error(tmp_path):
    for name, read in (
        ("out", Path.read_bytes),
        ("out.gz", lambda path: gzip.decompress(path.read_bytes())),
    ):
        with writer(str(tmp_path / name)) as put:
            put("ä\u2028\r\nb\n")
        assert read(tmp_path / name) == "ä\u2028\r\nb\n".encode()
    with (
        pytest.raises(
            UserError, match=r"missing/out: cannot be written, .*: make the folder first"
        ),
        writer(str(tmp_path / "missing/out")),
    ):
        pass
