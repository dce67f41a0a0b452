"""SentencePiece: lines come back, answers are the library's own, and pipelines around models."""

import io
import pickle
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import nmtdeep
from nmtdeep.config.load import load_recipe
from nmtdeep.config.text import SentencePiece as Config
from nmtdeep.config.text import Text
from nmtdeep.errors import ConfigError, DataError, UserError
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.sentencepiece import SentencePiece, learn, spread
from nmtdeep.text.vocabulary import EOS, UNK, Vocabulary

CORPUS = Path(nmtdeep.__file__).parent / "demo" / "corpus"
LINES = (CORPUS / "dev.en").read_text(encoding="utf-8").splitlines()
CONFIG = Config(size=400)
EXACT = learn(LINES, CONFIG, normalize=False)
NFKC = learn(LINES, Config(size=400, byte_fallback=False), normalize=True)
SECTION = {"tokenizer": {"type": "sentencepiece", "size": 400}, "normalize": False}


def pipeline(model=EXACT, **more):
    config = Text.model_validate(SECTION | more)
    vocabulary = Vocabulary.of_pieces(model.pieces, {}, config.vocabulary)
    return TextPipeline.of(config, (model, model), (vocabulary, vocabulary))


# No tab, which becomes a space; no U+2581, which the library reads as a space; no other half.
lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\t\u2581"))


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


def test_the_smallest_size_is_named_and_is_enough():
    with pytest.raises(UserError) as caught:
        learn(LINES, Config(size=5, byte_fallback=False), normalize=True)
    least = int(caught.value.problems[0].hint.removeprefix("set at least "))
    learn(LINES, Config(size=least, byte_fallback=False), normalize=True)
    with pytest.raises(UserError):
        learn(LINES, Config(size=least - 1, byte_fallback=False), normalize=True)


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


def test_strange_pieces_get_no_id():
    """Pieces that no line of our files can hold, and a model of characters."""
    strange = ["<pad>", "a\nb", "<filler0>", "\u3000"]
    model = trained(vocab_size=300, user_defined_symbols=strange)
    vocabulary = Vocabulary.of_pieces(model.pieces, {}, Text.model_validate(SECTION).vocabulary)
    assert vocabulary.tokens[:4] == ("<pad>", "</s>", "<unk>", "\u3000")
    assert len(vocabulary) % 8 == 0
    assert vocabulary.ids(["<pad>", "a\nb"]) == [UNK, UNK]
    with pytest.raises(DataError, match=r"^any: "):
        _ = trained(model_type="char", vocab_size=40, hard_vocab_limit=False).settings


def trained(*more, **settings):
    """A model from elsewhere."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*LINES, *more]), model_writer=out, minloglevel=2, **settings
    )
    return SentencePiece(out.getvalue(), "any")


def test_a_normalizer_cannot_break_lines_and_columns(tmp_path):
    """One that writes a line break, a tab and a return for letters."""
    (tmp_path / "rules.tsv").write_text("71\t0A\n7A\t09 62\n78\t0D\n")
    how = {"vocab_size": 300, "hard_vocab_limit": False}
    words = "quiz next queue zoo fox"
    model = trained(words, normalization_rule_tsv=str(tmp_path / "rules.tsv"), **how)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.content)
    assert "".join(theirs.encode("quiz", out_type=str)) == "▁\nui\tb"
    assert "".join(model.split("quiz")) == "▁▁ui▁b"
    side = pipeline(model).source
    assert side.join(["▁a", "\n", "\t", "b"]) == "a  b"
    line = "quiz x queue"
    assert side.split(" ".join(side.split(line)), "bpe") == side.split(line)


@pytest.mark.parametrize(("kind", "bytes_"), [("unigram", False), ("bpe", True)])
def test_a_model_tells_its_settings(kind, bytes_):
    config = Config(model=kind, size=350, byte_fallback=bytes_)
    settings = learn(LINES, config, normalize=False).settings
    assert Config.model_validate(settings) == config


def test_a_file_that_is_not_a_model_is_refused_by_name(tmp_path):
    path = tmp_path / "broken.model"
    for content in (b"", b"not a model", EXACT.content[:-100], bytes(50)):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"broken\.model: "):
            SentencePiece.load(path)
    with pytest.raises(DataError, match=r"none\.model: missing"):
        SentencePiece.load(tmp_path / "none.model")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bpe", {"type": "joint", "merges": 50}),
        ("input", "tokenized"),
        ("vocabulary", {"max_size": 50}),
        ("tokenizer", {"type": "sentencepiece", "model": "bpe", "sampling": {"alpha": 1.0}}),
    ],
)
def test_settings_of_words_are_refused(key, value):
    with pytest.raises(ValidationError, match=r"does not go with|set it below 1"):
        Text.model_validate(SECTION | {key: value})


def test_lower_case_comes_before_the_model_and_given_pieces_keep_theirs():
    side = pipeline(lowercase=True).source
    assert side.split("A DOG") == side.split("a dog") == EXACT.split("a dog")
    assert side.reference("A DOG") == "a dog"
    assert side.split("<0xF6> \u2581a", "bpe") == ["<0xF6>", "\u2581a"]
    assert UNK not in side.encode("<0xF6> \u2581a", "bpe")


def test_the_tokenizer_alone_replaces_the_keys_of_the_other_in_every_recipe():
    for name in ("deep-small", "zhang-2019/wmt14-en-de/post-base", "multi30k-en-de-deep"):
        before, after = load_recipe(name), load_recipe(name, ["text.tokenizer=sentencepiece"])
        assert after.text.tokenizer == Config()
        assert (after.text.bpe.type, after.text.input) == ("none", "raw")
        assert after.text.aggressive_hyphens is False
        # Everything else is the recipe's.
        assert after.text.clean == before.text.clean
        assert after.text.vocabulary.sharing == before.text.vocabulary.sharing
        assert (after.model, after.training) == (before.model, before.training)


def test_an_override_of_the_other_tokenizer_is_named_in_any_order():
    overrides = ["text.tokenizer=sentencepiece", "text.bpe.merges=500"]
    for order in (overrides, overrides[::-1]):
        with pytest.raises(ConfigError, match=r"text\.bpe\.merges=500"):
            load_recipe("deep-small", order)
