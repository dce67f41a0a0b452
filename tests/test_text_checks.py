"""Text that is not what it should be is named: file, count, a line and the cure."""

import csv
import gzip
from importlib.resources import files

import pytest

from nmtdeep.preprocessing.text_checks import SIZE, CheckedText, warnings

NAMES, LANGUAGES = ("x.en", "x.de"), ("en", "de")
CORPUS = files("nmtdeep") / "demo" / "corpus"
Pairs = list[tuple[str, str]]


def found(pairs: Pairs, form: str = "raw", languages: tuple[str, str] = LANGUAGES) -> list[str]:
    sample = CheckedText()
    for number, pair in enumerate(pairs, 1):
        sample.add(number, pair)
    return list(map(str, warnings(sample, NAMES, languages, form)))


@pytest.fixture(scope="module")
def clean():
    sides = [(CORPUS / f"dev.{side}").read_text("utf-8").split("\n")[:600] for side in LANGUAGES]
    return list(zip(*sides, strict=True))


def test_real_text_has_none(clean):
    assert found(clean) == []
    sides = (
        gzip.decompress((CORPUS / f"train.{side}.gz").read_bytes()).decode().split("\n")
        for side in LANGUAGES
    )
    assert found(list(zip(*sides, strict=True))) == []


def test_swapped_sides(clean):
    pytest.importorskip("py3langid")
    (line,) = found([(target, source) for source, target in clean])
    assert line.startswith("x.en and x.de: ")
    assert "are de as source and en as target: exchange them, or -s and -t" in line
    half = [pair if number % 2 else pair[::-1] for number, pair in enumerate(clean)]
    assert len(found(half)) == 1


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_mojibake(clean, encoding):
    def damaged(number: int, line: str) -> str:
        return line if number % 5 else line.encode().decode(encoding, "ignore")

    pairs = [(source, damaged(number, target)) for number, (source, target) in enumerate(clean)]
    lines = [line for line in found(pairs) if "mojibake" in line]
    assert len(lines) == 1 and lines[0].startswith("x.de: ")
    russian = [(source, "привет, мир".encode().decode("cp1251", "replace")) for source, _ in clean]
    assert "mojibake" in "".join(found(russian, languages=("en", "ru")))


def test_letters_of_real_words_are_no_mojibake():
    words = ["Größe", "naïve „Ärger“", "Ні, дякую", "Île-de-France", "ŁÓDŹ", "世界", "señor"]
    assert found([("a", word) for word in words], languages=("en", "xx")) == []


def test_fields_that_a_writer_of_csv_has_quoted(tmp_path, clean):
    with (tmp_path / "a.tsv").open("w", newline="") as file:
        rows = [*clean[:60], ('He said "hello".', 'Er sagte "Hallo".')]
        csv.writer(file, delimiter="\t").writerows(rows)
    text = (tmp_path / "a.tsv").read_text("utf-8").splitlines()
    lines = [line for line in found([tuple(row.split("\t")) for row in text]) if "CSV" in line]
    assert len(lines) == 2
    assert "x.de: " in lines[1] and "line 61" in lines[1]
    assert found([(f'"{source}"', f"„{target}“") for source, target in clean[:9]]) == []


def test_names_of_columns_in_the_first_line(clean):
    for first in (("en", "de"), ("English", "German"), ("source", "target_text"), ("EN", "DE-AT")):
        (line,) = found([first, *clean])
        assert "x.en: line 1 has the names of columns" in line
    for first in (("Source", "Quelle"), ("in", "de"), ("", "")):
        assert found([first, *clean]) == []


@pytest.mark.parametrize("target", ["T@@ ür", "▁Tür ▁zu"])
def test_subwords_in_raw_text(clean, target):
    pairs = clean[:90] + [("door", target)] * 10
    (line,) = found(pairs)
    assert line.startswith("x.de: 10 of 100 lines looked at (such as line 91) have subwords")
    assert found(pairs, form="bpe") == []


def test_a_sample_is_spread_over_all_lines_and_bounded():
    sample = CheckedText()
    for number in range(1, 100_001):
        sample.add(number, ("a", "b"))
    numbers = [number for number, _ in sample.pairs]
    assert numbers == list(range(1, 100_001, sample.step))
    assert SIZE <= len(numbers) < 2 * SIZE
