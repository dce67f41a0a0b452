"""From files to a data directory: every pair is counted, bad input is named and leaves nothing."""

from collections import Counter
from pathlib import Path

import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.text import Clean
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import DataError, UserError
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.learning import Tally
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.preprocessing.transforms import reason_to_drop

ENGLISH = ["A cat.", "Two cats & dogs, hm?", "The newest | [house].", "It's </s> <pad>."]
GERMAN = ["Eine Katze.", "Zwei Katzen & Hunde, hm?", "Das neueste | [Haus].", "Es ist's </s>."]


def write(prefix: Path, source: list[str], target: list[str]) -> Path:
    for language, lines in (("en", source), ("de", target)):
        path = prefix.parent / f"{prefix.name}.{language}"
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return prefix


def run(tmp_path: Path, *, out: str = "data", **settings):
    """Arguments of a preprocessing, and keys of the recipe's section text."""
    how = {name: settings.pop(name) for name in ("workers", "progress") if name in settings}
    overwrite, tests = settings.pop("overwrite", False), settings.pop("tests", ())
    text = {"bpe": {"type": "joint", "merges": 40}, **settings}
    recipe = Recipe.model_validate({"text": text, "model": {"embeddings": {"sharing": "none"}}})
    texts = CorpusFiles(tmp_path / "train", tmp_path / "dev", tests)
    return Preprocessing(recipe, texts, out=tmp_path / out, overwrite=overwrite).run(**how)


@pytest.fixture
def files(tmp_path):
    write(tmp_path / "train", ENGLISH * 5, GERMAN * 5)
    write(tmp_path / "dev", ["A dog.", "", "x " * 400], ["Ein Hund.", "", "y"])
    return tmp_path


def test_every_pair_is_kept_or_accounted_for(files):
    write(
        files / "train",
        [*ENGLISH, "", "a", "b", "w " * 9, "same", "same"],
        [*GERMAN, "x", "", "y z " * 9, "v", "gleich", "gleich"],
    )
    report = run(files, bpe="none", clean={"max_length": 15, "max_ratio": 8}).splits["train"]
    dropped = {name: (reason.count, reason.examples) for name, reason in report.reasons.items()}
    assert dropped == {
        "source is empty": (1, [5]),
        "target is empty": (1, [6]),
        "target longer than 15 subwords": (1, [7]),
        "one side more than 8 times the other": (1, [8]),
    }
    assert report.kept == report.read - 4 == 6
    assert report.repeated == 1
    assert len(DataDirectory.open(files / "data").corpus("train")) == 6


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (2, 3, None),
        (1, 3, "source shorter than 2 subwords"),
        (9, 10, None),
        (11, 10, "source longer than 10 subwords"),
        (2, 4, None),
        (5, 2, "one side more than 2 times the other"),
    ],
)
def test_reasons_to_drop_a_pair(source, target, expected):
    clean = Clean(min_length=2, max_length=10, max_ratio=2.0)
    assert reason_to_drop(source, target, clean) == expected


def test_words_are_counted_before_bpe_and_a_pair_at_the_limit_is_kept(files):
    write(files / "train", ["unseen words split", "one two three"], ["a b c", "a b c d"])
    report = run(files, bpe={"type": "joint", "merges": 1}, clean={"max_words": 3})
    reasons = report.splits["train"].reasons
    assert {name: reason.examples for name, reason in reasons.items()} == {
        "target longer than 3 words": [2]
    }


def test_evaluation_splits_keep_every_line(files):
    test = write(files / "news.2013", ["One.", "a\u2028b\x0bc"], ["Eins.", "d\x85e"])
    report = run(files, tests=[test])
    data = DataDirectory.open(files / "data")
    assert data.splits == ["train", "valid", "news.2013"]
    assert data.sources("news.2013") == ["One.", "a\u2028b\x0bc"]
    assert len(data.corpus("valid")) == len(data.references("valid")) == 3
    assert set(report.splits["valid"].reasons) == {
        "source is empty",
        "source longer than 250 subwords",
    }


@pytest.mark.slow
def test_workers_and_chunks_change_nothing(files, monkeypatch):
    write(files / "train", ENGLISH * 50 + ["", "é ü"], GERMAN * 50 + ["x", "ß"])
    bpe = {"type": "joint", "merges": 40, "vocabulary_threshold": 3}
    run(files, out="one", bpe=bpe)
    monkeypatch.setattr("nmtdeep.preprocessing.preprocess.CHUNK", 13)
    run(files, out="two", workers=2, bpe=bpe)
    assert sums(files / "one") == sums(files / "two")


def sums(directory):
    return (directory / "SHA256SUMS").read_text().splitlines()


def test_output_directory_in_use(files):
    run(files)
    before = (files / "data/data.json").read_bytes()
    with pytest.raises(UserError, match="--overwrite"):
        run(files)
    (files / "train.de").write_text("one line\n")
    with pytest.raises(DataError):
        run(files, overwrite=True)
    assert (files / "data/data.json").read_bytes() == before
    DataDirectory.open(files / "data")
    write(files / "train", ENGLISH, GERMAN)
    run(files, overwrite=True, bpe="none")
    assert len(DataDirectory.open(files / "data").corpus("train")) == 4
    assert not (files / "data/text/bpe.codes").exists()


def test_files_of_the_user_are_never_touched(files):
    (files / "home").mkdir()
    (files / "home/valid.en").write_text("mine")
    with pytest.raises(UserError, match=r"valid\.en: not a file of nmtdeep preprocess"):
        run(files, out="home", overwrite=True)
    assert (files / "home/valid.en").read_text() == "mine"
    with pytest.raises(UserError, match="is a file"):
        run(files, out="train.en")
    (files / "left/text").mkdir(parents=True)  # an interruption left empty folders
    run(files, out="left")
    assert (files / "left/data.json").is_file()


def test_lines_that_cannot_be_read_are_dropped_from_train_and_counted(files):
    with (files / "train.de").open("ab") as german, (files / "train.en").open("ab") as english:
        german.write(b"gr\xfcn\n" + b"x" * (1 << 20) + b"y\nlang\n")
        english.write(b"green\nlong\n" + b"x" * (1 << 20) + b"y\n")
    with pytest.raises(DataError, match=r"train\.de:21: not valid UTF-8"):
        run(files)
    assert not (files / "data").exists()
    report = run(files, clean={"encoding": "drop"}).splits["train"]
    assert {reason: str(pairs) for reason, pairs in report.reasons.items()} == {
        "unreadable target: not UTF-8": "1 (line 21)",
        "unreadable target: longer than 1 MiB": "1 (line 22)",
        "unreadable source: longer than 1 MiB": "1 (line 23)",
    }
    assert (report.read, report.kept) == (23, 20)


def test_lines_that_cannot_be_read_are_errors_elsewhere(files):
    (files / "dev.de").write_bytes(b"Ein Hund.\n\ngr\xfcn\n")
    with pytest.raises(DataError, match=r"dev\.de:3: "):
        run(files, clean={"encoding": "drop"})


def test_the_rarest_words_are_forgotten_and_counted_as_forgotten():
    tally = Tally(6)
    tally.add(Counter({"a": 5, "b": 4, "c": 3, "d": 2, "e": 1, "f": 1}))
    assert tally.forgotten == 0
    # The seventh word leaves the three most frequent; "d" is not among them.
    tally.add(Counter({"g": 2, "c": 1}))
    assert tally.counts == {"a": 5, "b": 4, "c": 4}
    assert tally.forgotten == 6
    tally.add(Counter({"d": 1}))
    assert tally.counts["d"] == 1
    assert tally.forgotten == 6
