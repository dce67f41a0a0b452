"""Text to ids and back: hand-made expectations, hypothesis for the exact parts, broken files."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtdeep.config.text import Text
from nmtdeep.errors import UserError
from nmtdeep.text.bpe import Bpe, learn
from nmtdeep.text.pipeline import TextPipeline, words_of
from nmtdeep.text.vocabulary import shared_or_separate

from .test_bpe import words

LINES = [
    'The cat\'s hat & the "dog" | <b> [x].',
    "A man, a plan; a canal: Panama!",
    "It costs $5,300 (or 5%).",
]


def pipeline(**settings):
    config = Text(**{"normalize": False, "bpe": {"type": "joint", "merges": 60}, **settings})
    counts = [
        Counter(word for line in LINES for word in words_of(line, config, language, config.input))
        for language in (config.source, config.target)
    ]
    if config.bpe.type == "none":
        sides = (None, None)
        pieces = counts
    else:
        merges = learn(counts[0] + counts[1], 60)
        sides = (Bpe(merges), Bpe(merges))
        pieces = [side.count(words) for side, words in zip(sides, counts, strict=True)]
        if config.bpe.vocabulary_threshold:
            allowed = frozenset(p for p in pieces[0] if pieces[0][p] > 1)
            sides = (Bpe(merges, allowed), Bpe(merges, allowed))
    return TextPipeline.of(config, sides, shared_or_separate(*pieces, config.vocabulary))


PIPELINE = pipeline()


@pytest.mark.parametrize("line", [*LINES[1:], "", 'The cat hat & the "dog" | x [x].'])
@pytest.mark.parametrize("languages", [("en", "de"), ("de", "en")])
def test_raw_lines_come_back(line, languages):
    saved = pipeline(source=languages[0], target=languages[1])
    assert saved.target.join(saved.target.split(line)) == line


@given(st.lists(words | st.sampled_from(["@@", "a@@", "</s>", "<pad>", "@-@"])))
def test_tokenized_lines_come_back_whatever_the_words(words):
    line = " ".join(words)
    pieces = PIPELINE.target.split(line, "tokenized")
    assert PIPELINE.target.join(pieces, "tokenized") == line
    assert PIPELINE.target.split(" ".join(pieces), "bpe") == pieces
    assert PIPELINE.target.join(pieces, "bpe") == " ".join(pieces)


def test_lower_casing_comes_first():
    saved = pipeline(lowercase=True, normalize=True)
    for line in ("Mr. Smith’s “Hat”", "ÜBER „Mr.“"):
        assert saved.source.split(line) == saved.source.split(line.lower())
    assert saved.target.join(saved.target.split("A MAN!")) == "a man!"


def test_references_are_spelled_as_the_system_spells():
    saved = pipeline(lowercase=True, normalize=True)
    line = "Er sagt: „Ja.“"
    assert saved.target.reference(line) == 'er sagt: "ja".'
    assert saved.target.split(saved.target.reference(line), "raw") == saved.target.split(line)
    assert saved.reference_form == "raw"


def test_tokenized_input_is_not_normalized_and_reference_stays_words():
    saved = pipeline(input="tokenized", normalize=True)
    assert saved.source.split("a :", "tokenized")[-1] == ":"
    assert saved.target.reference("Er sagt : „ Ja . “") == "Er sagt : „ Ja . “"
    assert saved.reference_form == "tokenized"


def test_text_that_is_already_split():
    saved = pipeline(input="bpe", bpe="none")
    assert saved.source.split("lo@@ w ;", "bpe") == ["lo@@", "w", ";"]
    assert saved.target.join(["lo@@", "w", ";"]) == "low;"
    assert saved.target.join(["lo@@", "w", ";"], "tokenized") == "low ;"
    assert saved.target.reference("lo@@ w ;") == "low ;"
    with pytest.raises(UserError, match="--input-is bpe"):
        saved.source.split("low;")
    # Words of a pipeline without BPE keep their signs.
    assert pipeline(bpe="none").target.join(["a@@", "b"], "tokenized") == "a@@ b"


SETTINGS = [
    {},
    {"bpe": "none"},
    {"bpe": {"type": "separate", "merges": 9}, "vocabulary": {"sharing": "separate"}},
    {"bpe": {"type": "joint", "merges": 60, "vocabulary_threshold": 2}},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_saved_pipeline_loads_equal(tmp_path, settings):
    saved = pipeline(**settings)
    saved.save(tmp_path / "text")
    loaded = TextPipeline.load(tmp_path / "text")
    assert loaded == saved
    assert loaded.fingerprint() == saved.fingerprint()
    assert sorted(path.name for path in (tmp_path / "text").iterdir()) == sorted(saved.contents())
