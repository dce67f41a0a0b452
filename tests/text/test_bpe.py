"""The library's own command line is the other source; joining is exact for every word."""

import io
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE, read_vocabulary
from subword_nmt.get_vocab import get_vocab
from subword_nmt.learn_bpe import learn_bpe

from nmtdeep.errors import DataError
from nmtdeep.text.bpe import Bpe, join, learn, load_merges

TEXT = [
    "low lower lowest new newer newest wide wider widest",
    "the lower the better the wider the newer",
    "low low low new new wide ; ; @ - - a",
] * 3
COUNTS = Counter(word for line in TEXT for word in line.split())
MERGES = learn(COUNTS, 30)


def codes():
    written = io.StringIO()
    learn_bpe([f"{line}\n" for line in TEXT], written, 30)
    return written


def library(threshold=None):
    if threshold is None:
        return BPE(codes())
    vocabulary = io.StringIO()
    get_vocab([BPE(codes()).process_line(line) for line in TEXT], vocabulary)
    return BPE(codes(), vocab=read_vocabulary(vocabulary.getvalue().splitlines(), threshold))


def test_learning_from_counts_is_learning_from_text():
    assert codes().getvalue().splitlines()[1:] == list(MERGES)
    reported = []
    assert learn(COUNTS, 5, report=reported.append) == MERGES[:5]
    assert reported == [0, 1, 2, 3, 4, 5]


@given(st.lists(st.text("lowernwids@the", min_size=1, max_size=12), max_size=6))
def test_segmentation_equals_that_of_the_library(words):
    ours = Bpe(MERGES).split(words)
    theirs = library().segment_tokens(words)
    # They differ on purpose where a word's last subword ends in @@.
    if not any(word.endswith("@@") for word in words):
        assert ours == theirs
    assert join(ours) == words


@pytest.mark.parametrize("threshold", [2, 5, 9])
def test_vocabulary_threshold_equals_that_of_the_library(threshold):
    plain = Bpe(MERGES)
    allowed = frozenset(p for p, count in plain.count(COUNTS).items() if count >= threshold)
    ours, theirs = Bpe(MERGES, allowed), library(threshold)
    for word in [*COUNTS, "newlow", "lowestwide"]:
        assert list(ours.word(word)) == theirs.segment_tokens([word])


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda word: word.split() == [word]
)


@given(st.lists(words | st.sampled_from(["@@", "a@@", "@@@", "</w>", "x</w>", "</w></w>"])))
def test_join_inverts_split(words):
    counts = Counter(words * 3)
    for merges in (MERGES, learn(counts, 50), learn(Counter({"@@": 9, "a@@": 9}), 9)):
        assert join(Bpe(merges).split(words)) == words


def test_dropout_equals_that_of_the_library_and_changes_no_state():
    bpe, theirs = Bpe(MERGES), library()
    draw = random.Random(5)
    ours = [bpe.dropped("newest", 0.5, draw) for _ in range(50)]
    random.seed(5)  # the library draws from the global generator
    assert [list(pieces) for pieces in ours] == [
        theirs.segment_tokens(["newest"], 0.5) for _ in range(50)
    ]
    assert len(set(ours)) > 3
    assert bpe.word("newest") == Bpe(MERGES).word("newest")


def test_symbols_hold_everything_dropout_makes():
    bpe = Bpe(MERGES)
    symbols = bpe.symbols(COUNTS)
    draw = random.Random(1)
    for _ in range(200):
        for word in COUNTS:
            assert set(bpe.dropped(word, 0.3, draw)) <= symbols


def test_a_file_of_codes_equals_that_of_the_library(tmp_path):
    path = tmp_path / "codes"
    path.write_text(Bpe(MERGES).dumps(), encoding="utf-8")
    assert load_merges(path) == MERGES
    words = "newest lowest"
    assert BPE(io.StringIO(path.read_text())).segment(words) == library().segment(words)
    for text, line in (("#version: 0.2\na b\nabc\n", 3), ("a b\n", 1)):
        path.write_text(text)
        with pytest.raises(DataError, match=f"codes:{line}"):
            load_merges(path)


def test_a_very_long_word_is_learned_from_in_parts():
    parts = {"ab" * 250: 2, "ba" * 250: 1, "abab": 1}
    whole = {"ab" * 500 + "ba" * 250: 1, "abab": 1}
    assert learn(whole, 9) == learn(parts, 9)
