"""SentencePiece: lines come back, answers are the library's own, and pipelines around models."""

import io
import pickle
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import nmtdeep.demo
from nmtdeep.config.text import SentencePiece as Config
from nmtdeep.config.text import Text
from nmtdeep.errors import DataError, UserError
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.sentencepiece import SentencePiece, learn, spread
from nmtdeep.text.vocabulary import EOS, UNK, Vocabulary

CORPUS = Path(nmtdeep.demo.__file__).parent / "corpus"
LINES = (CORPUS / "dev.en").read_text(encoding="utf-8").splitlines()
CONFIG = Config(size=400)
EXACT = learn(LINES, CONFIG, normalize=False)
NFKC = learn(LINES, Config(size=400, byte_fallback=False), normalize=True)
SECTION = {"tokenizer": {"type": "sentencepiece", "size": 400}, "normalize": False}


def pipeline(model: SentencePiece = EXACT, **more) -> TextPipeline:
    config = Text.model_validate(SECTION | more)
    vocabulary = Vocabulary.of_pieces(model.pieces, {}, config.vocabulary)
    return TextPipeline.of(config, (model, model), (vocabulary, vocabulary))


# No tab, which becomes a space; no U+2581, which the library reads as a space; no other half.
lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\t\u2581"))


@settings(deadline=None)
@given(
    lines | st.sampled_from(["  two  spaces ", "a\u00a0b\u3000c", "</s><0x41> <unk>", "🎉\x00\r"])
)
def test_any_line_comes_back_by_bytes(line):
    side = pipeline().source
    back = line if line.strip() else ""  # nothing is translated to nothing
    assert side.join(side.vocabulary.words(side.encode(line))) == back
    assert side.reference(line) == back
    assert UNK not in side.encode(line)


def test_pieces_and_ids_are_the_librarys_own():
    theirs = sentencepiece.SentencePieceProcessor(model_proto=EXACT.content)
    side = pipeline().source
    for line in LINES[:50]:
        pieces = theirs.encode(line, out_type=str)
        assert side.split(line) == pieces
        # Their model begins with <unk>, <s> and </s>, our vocabulary with <pad>, </s> and <unk>.
        assert side.encode(line) == [*theirs.encode(line), EOS]
        assert side.split(" ".join(pieces), "bpe") == pieces
        assert side.join(pieces, "bpe") == " ".join(pieces)


def test_what_a_model_normalizes_and_does_not_know():
    side = pipeline(NFKC).source
    assert side.reference("\uff21 \ufb01ne  day 猫") == "A fine day 猫"
    assert side.split("猫a")[1:] == ["猫", "a"]
    assert side.encode("猫")[-2:] == [UNK, EOS]
    assert side.join(side.split("\uff21 \ufb01ne  day")) == "A fine day"


def test_lower_case_comes_before_the_model():
    side = pipeline(lowercase=True).source
    assert side.split("A DOG") == side.split("a dog") == EXACT.split("a dog")
    assert side.reference("A DOG") == "a dog"


def test_output_is_one_line_and_input_is_raw():
    side = pipeline().source
    assert side.join(["<0x0A>", "a", "<0x0A>", "</s>", "<filler1>"]).count("\n") == 0
    with pytest.raises(UserError, match="splits raw text, not words"):
        side.split("a dog", "tokenized")
    assert side.join(side.split("it's"), "tokenized") == "it's"
    assert side.encode("a\ud800b") == side.encode("a?b")


def test_learning_is_deterministic_and_reads_a_part_of_the_text():
    again = learn(iter(LINES), CONFIG, normalize=False)
    assert again.content == EXACT.content
    assert list(spread("abcdefgh", 8, 8)) == list("abcdefgh")
    assert list(spread("abcdefgh", 8, 4)) == list("bdfh")
    assert [len(list(spread(range(1000), 1000, wanted))) for wanted in (1, 7, 999)] == [1, 7, 999]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_settings_reach_the_model(kind):
    config = Config(model=kind, size=350, split_digits=True, character_coverage=1.0)
    model = learn(["In 2024, 1234 dogs.", *LINES], config, normalize=False)
    assert len(model.pieces) == 350 - 3
    assert [piece for piece in model.split("2024") if piece.strip("▁")] == list("2024")
    rare = set("".join(LINES)) - {" "}
    assert rare <= set("".join(model.pieces))


def test_too_few_pieces_for_the_characters_are_refused():
    with pytest.raises(UserError, match=r"text\.tokenizer\.size: .* cannot learn .* 5 pieces"):
        learn(LINES, Config(size=5, byte_fallback=False), normalize=True)


@pytest.mark.parametrize("sharing", ["shared", "separate"])
def test_a_saved_pipeline_loads_equal(tmp_path, sharing):
    config = Text.model_validate(SECTION | {"vocabulary": {"sharing": sharing}})
    models = (EXACT, EXACT) if sharing == "shared" else (EXACT, NFKC)
    counts = {"▁a": 7}
    sides = [Vocabulary.of_pieces(each.pieces, counts, config.vocabulary) for each in models]
    saved = TextPipeline.of(config, models, sides)
    saved.save(tmp_path / "text")
    loaded = TextPipeline.load(tmp_path / "text")
    assert loaded == saved
    assert loaded.fingerprint() == saved.fingerprint()
    assert loaded.source.vocabulary.counts[loaded.source.vocabulary.ids(["▁a"])[0]] == 7
    names = sorted(path.name for path in (tmp_path / "text").glob("*.model"))
    separate = ["sentencepiece.de.model", "sentencepiece.en.model"]
    assert names == (["sentencepiece.model"] if sharing == "shared" else separate)
    assert pickle.loads(pickle.dumps(loaded)).source.split("a dog") == EXACT.split("a dog")


def test_a_vocabulary_may_give_other_ids_to_the_pieces():
    """As a converter does, whose model counts its types in another order and lacks some."""
    tokens = ("<pad>", "</s>", "<unk>", "▁the", "▁a")
    config = Text.model_validate(SECTION)
    vocabulary = Vocabulary(tokens, (0,) * len(tokens))
    side = TextPipeline.of(config, (EXACT, EXACT), (vocabulary, vocabulary)).source
    assert side.split("a the runs")[:2] == ["▁a", "▁the"]
    ids = side.encode("a the runs")
    assert ids[:2] == [4, 3] and set(ids[2:-1]) == {UNK}


def test_strange_pieces_get_no_id():
    """A model from elsewhere may have pieces that no line of our files can hold."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=out,
        vocab_size=300,
        user_defined_symbols=["<pad>", "a\nb", "<filler0>", "\u3000"],
        minloglevel=2,
    )
    model = SentencePiece(out.getvalue())
    config = Text.model_validate(SECTION)
    vocabulary = Vocabulary.of_pieces(model.pieces, {}, config.vocabulary)
    assert vocabulary.tokens[:4] == ("<pad>", "</s>", "<unk>", "\u3000")
    assert len(vocabulary) % 8 == 0
    assert vocabulary.ids(["<pad>", "a\nb"]) == [UNK, UNK]


@pytest.mark.parametrize("content", [b"", b"not a model", EXACT.content[:-100], b"\x00" * 50])
def test_a_file_that_is_not_a_model_is_refused_by_name(tmp_path, content):
    path = tmp_path / "broken.model"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.model: not a SentencePiece model .*: copy"):
        SentencePiece.load(path)
    with pytest.raises(DataError, match=r"none\.model: missing"):
        SentencePiece.load(tmp_path / "none.model")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bpe", {"type": "joint", "merges": 50}),
        ("input", "tokenized"),
        ("aggressive_hyphens", True),
        ("chinese", "jieba"),
        ("vocabulary", {"min_count": 2}),
        ("vocabulary", {"max_size": 50}),
        ("tokenizer", {"type": "sentencepiece", "model": "bpe", "sampling": {}}),
    ],
)
def test_settings_of_words_are_refused(key, value):
    with pytest.raises(ValidationError, match=r"does not go with|no probabilities"):
        Text.model_validate(SECTION | {key: value})


def test_the_default_of_bpe_is_none():
    assert Text.model_validate(SECTION).bpe.type == "none"
    assert Text.model_validate(Text().model_dump() | SECTION).bpe.type == "none"
    assert Text().bpe.type == "joint"
