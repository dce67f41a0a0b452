"""Moses through sacremoses: what Multi30k's authors got from Perl is the other source."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from nmtdeep.text.tokenization import Moses, moses


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("split", ["val", "test_2016_flickr"])
def test_multi30k_is_tokenized_as_its_authors_did(language, split, multi30k):
    raw, theirs = multi30k(f"{split}.{language}"), multi30k(f"tok/{split}.lc.norm.tok.{language}")
    tokenizer = moses(language)
    for line, expected in zip(raw, theirs, strict=True):
        words = tokenizer.tokenize(tokenizer.normalize(line.lower()))
        assert " ".join(words) == expected.replace("&apos;", "'").replace("&quot;", '"')


@pytest.mark.parametrize("language", ["en", "de", "fr", "cs", "fi", "zh"])
def test_normalizing_equals_that_of_the_library(language):
    for line in (
        "„So.“",
        'Er sagte "Ja." Und',
        "a ( b ) : c ; 5 %",
        "5\xa0000 «x» ’em",
        "`a' ''b''",
    ):
        expected = MosesPunctNormalizer(language).normalize(line + "\n")
        assert Moses(language).normalize(line) == expected


def test_nothing_is_escaped():
    line = 'R&D | <b>x</b> [1] "q" it\'s &amp;'
    words = moses("en").tokenize(line)
    expected = 'R & D | < b > x < / b > [ 1 ] " q " it \'s & amp ;'
    assert words == expected.split(" ")
    assert moses("en").detokenize(["&amp;", "&lt;"]) == "&amp; &lt;"


def test_escapes_of_moses_come_and_go():
    line = "It's \"Tom's\" car & dog [x] <y> a|b"
    words = moses("en", escape=True).tokenize(line)
    assert words == MosesTokenizer("en").tokenize(line, escape=True)
    assert {"&apos;s", "&quot;", "&amp;"} <= {*words}
    assert moses("en", escape=True).detokenize(words) == moses("en").detokenize(
        moses("en").tokenize(line)
    )


def test_aggressive_hyphens_are_split_and_closed_again():
    tokenizer = moses("en", aggressive_hyphens=True)
    words = tokenizer.tokenize("a well-known fact")
    assert words == ["a", "well", "@-@", "known", "fact"]
    assert tokenizer.detokenize(words) == "a well-known fact"


words = st.text("abcdeäßéñ0123456789", min_size=1, max_size=6)
clause = st.lists(words, min_size=1, max_size=5).map(" ".join)
phrase = st.one_of(
    clause,
    clause.map(lambda inner: f"({inner})"),
    clause.map(lambda inner: f'"{inner}"'),
    st.tuples(words, words).map("-".join),
    st.integers(0, 999).map(lambda n: f"${n},500"),
)
sentence = st.builds(
    lambda parts, marks, end: "".join(
        part + mark for part, mark in zip(parts, [*marks[: len(parts) - 1], end], strict=True)
    ),
    st.lists(phrase, min_size=1, max_size=4),
    st.lists(st.sampled_from([", ", "; ", ": ", " ", " & ", "! "]), min_size=4, max_size=4),
    st.sampled_from([".", "!", "?", "...", ""]),
)


@given(sentence, st.sampled_from(["en", "de"]))
@example("It's Peter's, isn't it?", "en")
@example("The dogs' bowls weren't full.", "en")
def test_ordinary_sentences_come_back_exactly(line, language):
    tokenizer = moses(language)
    assert tokenizer.detokenize(tokenizer.tokenize(line)) == line
