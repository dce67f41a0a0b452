"""Specials are never reachable from text; a saved vocabulary comes back; broken files are named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtdeep.config.text import Vocabulary as Config
from nmtdeep.errors import DataError
from nmtdeep.text.vocabulary import EOS, PAD, UNK, Vocabulary, shared_or_separate

from .test_bpe import words

COUNTS = {"the": 5, "b": 2, "a": 2, "rare": 1, "</s>": 9, "<filler0>": 9}


def test_order_is_count_then_code_point_and_size_a_multiple():
    vocabulary = Vocabulary.build(COUNTS, Config(min_count=2, multiple=8))
    words, fillers = ("the", "a", "b"), ("<filler0>", "<filler1>")
    assert vocabulary.tokens == ("<pad>", "</s>", "<unk>", *words, *fillers)
    assert (PAD, EOS, UNK) == (0, 1, 2)
    assert len(vocabulary) == 8
    small = Vocabulary.build(COUNTS, Config(max_size=1, multiple=1))
    assert small.tokens[3:] == ("the",)


def test_specials_and_fillers_in_text_are_unknown():
    vocabulary = Vocabulary.build(COUNTS, Config(min_count=2))
    assert vocabulary.ids(["<pad>", "</s>", "<unk>", "<filler0>", "zebra"]) == [UNK] * 5


def test_words_stop_at_eos_and_drop_padding():
    vocabulary = Vocabulary.build(COUNTS, Config())
    assert vocabulary.words([0, 3, 2, 1, 4]) == ["the", "<unk>"]
    assert "the" in vocabulary
    assert "</s>" not in vocabulary


@given(st.dictionaries(words, st.integers(1, 9), max_size=20))
def test_known_words_and_the_saved_vocabulary_come_back(tmp_path_factory, counts):
    path = tmp_path_factory.mktemp("vocabulary") / "v.tsv"
    vocabulary = Vocabulary.build(counts, Config())
    known = [word for word in counts if word in vocabulary]
    assert vocabulary.words(vocabulary.ids(known)) == known
    assert len(vocabulary) % 8 == 0
    path.write_bytes(vocabulary.dumps().encode())
    assert Vocabulary.load(path) == vocabulary


@pytest.mark.parametrize(
    ("more", "line"),
    [("word\n", 4), ("word\tmany\n", 4), ("two words\t3\n", 4), ("a\t3\na\t2\n", 5), ("a\t٣\n", 4)],
)
def test_broken_file_names_file_and_line(tmp_path, more, line):
    path = tmp_path / "v.tsv"
    for content, number in (
        (f"<pad>\t0\n</s>\t0\n<unk>\t0\n{more}", line),
        ("<pad>\t0\n<unk>\t0\n</s>\t0\n", 2),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match=rf"v\.tsv:{number}: "):
            Vocabulary.load(path)
    path.write_text("<pad>\t0\n")
    with pytest.raises(DataError, match="only 1 lines"):
        Vocabulary.load(path)


def test_shared_adds_both_counts():
    source, target = shared_or_separate({"a": 1}, {"a": 2, "b": 1}, Config())
    assert source is target
    assert dict(zip(source.tokens, source.counts, strict=True))["a"] == 3
    source, target = shared_or_separate({"a": 1}, {"b": 1}, Config(sharing="separate"))
    assert "b" not in source
    assert "a" not in target
