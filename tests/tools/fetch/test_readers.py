"""Lines of the publishers' files and their cleaning: by sacreBLEU, published pipelines, by hand."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from nmtdeep.config.text import Clean
from nmtdeep.errors import DataError
from nmtdeep.preprocessing.transforms import Pair
from nmtdeep.tools.fetch.catalog import Output, ParallelFiles, Step
from nmtdeep.tools.fetch.readers import LONGEST_LINE, RawPair, read_pairs
from nmtdeep.tools.fetch.steps import Casing, prepare

from .archives import sgm

LINES = [
    "A  B\tC", "5 &amp; 6 &lt;b&gt;", "<b>bold</b> text", "naïve “quote” ’s", "", "x </p> y",
    "no\u00a0break \u2028 here",
]  # fmt: skip


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def read(form: str, *files: Path, columns: tuple[int, int] | None = None) -> list[tuple[str, str]]:
    text = ParallelFiles.model_validate(
        {"form": form, "files": tuple(file.name for file in files), "columns": columns}
    )
    return [(source.decode(), target.decode()) for source, target in read_pairs(text, list(files))]


def test_test_sets_are_read_as_sacrebleu_reads_them(tmp_path):
    lines = [line for line in LINES if "\u2028" not in line]
    path = write(tmp_path, "a.sgm", sgm(lines))
    FakeSGMLDataset("any", langpairs={})._convert_format(str(path), str(tmp_path / "theirs"))
    theirs = (tmp_path / "theirs").read_text(encoding="utf-8").split("\n")[:-1]
    assert [line for line, _ in read("sgm", path, path)] == theirs
    assert len(theirs) == len(lines)


def test_iwslts_training_text_is_the_output_of_fairseqs_pipeline(tmp_path):
    content = (
        "<url>http://www.ted.com/1</url>\n<keywords>talks, <title></keywords>\n<talkid>1</talkid>\n"
        "<title>The title</title>\n<description>TED Talk: what</description>\nFirst <b>line .\n"
        "text <url>x</url> text\nlast line </title> end\n"
    )
    path = write(tmp_path, "train.tags", content.encode())
    theirs = subprocess.run(
        f"cat {path} | grep -v '<url>' | grep -v '<talkid>' | grep -v '<keywords>' | "
        "sed -e 's/<title>//g' | sed -e 's/<\\/title>//g' | sed -e 's/<description>//g' | "
        "sed -e 's/<\\/description>//g'",
        shell=True, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert [line for line, _ in read("iwslt", path, path)] == theirs


def test_columns_of_a_table_are_picked_in_either_order(tmp_path):
    path = write(tmp_path, "a", b"fi1\ten1\r\nfi2\ten2\textra\nonly one\nfi3\ten3")
    expected = [("en1", "fi1"), ("en2", "fi2"), ("", ""), ("en3", "fi3")]
    assert read("table", path, columns=(1, 0)) == expected


def test_a_line_of_text_ends_at_a_newline_and_nowhere_else(tmp_path):
    path = write(tmp_path, "a", "a\u2028b\x0bc\rd\x85\r\n\n \tlast ".encode())
    assert [line for line, _ in read("text", path, path)] == [
        "a\u2028b\x0bc\rd\x85",
        "",
        " \tlast ",
    ]


def test_sides_of_different_length_are_refused(tmp_path):
    files = [write(tmp_path, "a", b"1\n2\n"), write(tmp_path, "b", b"1\n2\n3\n")]
    with pytest.raises(DataError, match=r"^a: ends after 2 lines, but b continues"):
        read("text", *files)


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("text", b"x" * LONGEST_LINE + b"\n", "not text"),
        ("sgm", b'<seg id="1">half a\nsentence</seg>\n', "without its end"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, form, content, message):
    path = write(tmp_path, "a", content)
    with pytest.raises(DataError, match=message):
        read(form, path, path)


def prepared(
    pairs: list[RawPair], output: Output, casing: Casing | None = None
) -> tuple[list[Pair], Counter[str]]:
    dropped: Counter[str] = Counter()
    return list(prepare(pairs, output, ("en", "de"), (casing, None), dropped)), dropped


def line(text: str, *steps: Step, casing: Casing | None = None) -> str:
    [(source, _)], _ = prepared([(text.encode(), b"x")], Output(parts=(), steps=steps), casing)
    return source


@pytest.mark.parametrize(
    ("step", "text", "expected"),
    [
        # Perl's \p{C}: controls, formats (soft hyphen, zero-width joiner), private use.
        ("non_printing", "a\x00b\tc\u00add\u200de\ue000f", "a b c d e f"),
        ("non_printing", "no\u00a0break \u2028 émoji 🙂", "no\u00a0break \u2028 émoji 🙂"),
        ("quotes", "it’s “so” ‘x’", "it's “so” ‘x'"),
        ("unescape", "&quot; it &apos;s &#91; x &#93; &lt; &gt;", "\" it 's [ x ] < >"),
        ("unescape", "&#124; R &amp; D &amp;lt; &eacute;", "| R & D &lt; &eacute;"),  # once
        ("tokenize", "well-known, it's", "well-known , it 's"),
        ("tokenize_hyphens", "well-known, it's", "well @-@ known , it 's"),
    ],
)
def test_each_step_does_what_the_publishers_did(step, text, expected):
    assert line(text, step) == expected


def test_truecasing_gives_first_words_their_commonest_spelling():
    casing = Casing.of(["the cat sees the Dog .", "Paris the US", "The us us US US"])
    # first: the (2 of 3); known inside: stays; unknown inside: the commonest; behind a stop: first
    text = "The Dog THE Cat : The cat ( unseen Unseen"
    assert line(text, "truecase", casing=casing) == "the Dog the cat : the cat ( unseen Unseen"
    assert line('" The US', "truecase", casing=casing) == '" the US'


def test_cleaning_counts_words_and_reports_the_reason():
    clean = Clean(min_length=1, max_length=4, max_ratio=1.5)
    raw = [(b"a b c", b"a b"), (b"a b c d", b"a b"), (b"a b c d e", b"a b c d"), (b"", b"a")]
    pairs, dropped = prepared(raw, Output(parts=(), clean=clean))
    assert pairs == [("a b c", "a b")]
    assert dropped == {
        "one side more than 1.5 times the other": 1,
        "source longer than 4 words": 1,
        "source is empty": 1,
    }
