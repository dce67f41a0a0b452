"""Unusual lines: any line becomes ids, in time that grows linearly with its length."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from nmtdeep.text.protection import LETTER
from nmtdeep.text.tokenization import Moses, moses
from nmtdeep.text.vocabulary import EOS

from .test_pipeline import pipeline

LONG = 30_000
LINES = {
    "a word": "x",
    "words": "a cat ",
    "combining marks": "\u0301\u0308",
    "right to left": "שלום \u202e",
    "emoji": "👩\u200d👩\u200d👧 ",
    "lone surrogates": "\udcff\ud800 \0",
    "line separators": "a\u2028\u2029\x85",
    "quotes": "\"' ",
    # Stops took the square of their number, and words with stops milliseconds each.
    "stops": ".",
    "words with stops": "a.b. ",
    # Beginnings of what is protected, each of which might be searched to the end of the line.
    "tags of one word": "<a",
    "open values": '<a b="',
    "spaces after a tag": "<a" + " " * LONG,
    "attributes after a tag": "<a" + " b=c d" * LONG,
    "placeholders": "%(",
    "braces with a space": "{ a ",
    "flags of a placeholder": "%-0",
    "URLs that end nowhere": "x://....",
    "schemes": "a+.-",
    "addresses": "a@b.",
    "entities": "&#1",
    "marks of one sign": "!!!!\u0301",
    "joiners": "\u200d!",
    "flags": "🇩",
    "numbers": "1\xa0",
    "our own letter": LETTER + " {0}",
}
LIBRARY = {language: MosesTokenizer(language) for language in ("de", "en")}
PIPELINES = {language: pipeline(normalize=True, target=language) for language in ("de", "fr")}


@pytest.mark.parametrize("piece", LINES.values(), ids=LINES)
@pytest.mark.parametrize("language", ["de", pytest.param("fr", marks=pytest.mark.slow)])
def test_a_long_line_of_anything_becomes_ids_and_one_line(language, piece):
    pipeline = PIPELINES[language]
    line = (piece * (LONG // len(piece) + 1))[:LONG]
    start = time.process_time()
    ids = pipeline.target.encode(line)
    assert ids.index(EOS) == len(ids) - 1
    assert "\n" not in pipeline.target.join(pipeline.target.vocabulary.words(ids))
    # A fifth of a second; the square of the length, or a millisecond a word, would be 5 at least.
    assert time.process_time() - start < 3


@given(st.text('.."" <a\n', max_size=30))
@pytest.mark.parametrize("language", ["de", "en"])
def test_stops_and_quotes_are_normalized_as_the_library_does(language, line):
    line = line.replace("\n", " ")
    expected = MosesPunctNormalizer(language).normalize(line + "\n")
    assert moses(language).normalize(line) == expected


@given(st.text("a.B1 ä-,Z", max_size=30))
@pytest.mark.parametrize("language", ["de", "en"])
def test_words_with_stops_are_split_as_the_library_does(language, line):
    assert moses(language).tokenize(line) == LIBRARY[language].tokenize(line, escape=False)


def test_czech_words_before_li_are_detokenized():
    # sacremoses 0.2.0 ends in a TypeError here.
    assert Moses("cs").detokenize(["m'", "-", "li"]) == "m' - li"
