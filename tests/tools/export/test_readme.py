"""The steps in the README of an export do what the text pipeline does."""

import io
import re
import unicodedata

import pytest
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from sentencepiece import SentencePieceProcessor
from subword_nmt.apply_bpe import BPE

from nmtdeep.config.text import SentencePiece, Text
from nmtdeep.text import sentencepiece
from nmtdeep.text.bpe import Bpe, learn
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import SPECIALS, Vocabulary
from nmtdeep.tools.export.readme import render

NAMES = {
    "MosesPunctNormalizer": MosesPunctNormalizer,
    "MosesTokenizer": MosesTokenizer,
    "unicodedata": unicodedata,
}
LINES = [
    "“Well-known”  things: it’s 3 o'clock — isn't it?",
    "A man's dog, e.g. a Great Dane & a cat [both] cost $5.50…",
    "<unk> schön, naïve… 100% @-@ well-known\u00a0words",
]


@pytest.mark.parametrize("hyphens", [False, True])
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("rules", ["original", "protected"])
def test_the_steps_by_hand_return_our_subwords(hyphens, lowercase, rules):
    merges = learn({"things": 4, "thing": 3, "cat": 2, "cats": 2, "known": 5}, 12)
    tokenizer = {"type": "moses_bpe", "rules": rules}
    settings = {"aggressive_hyphens": hyphens, "lowercase": lowercase, "tokenizer": tokenizer}
    text = Text.model_validate(settings)
    # <unk> is markup, which is hidden first.
    lines = LINES if rules == "original" else [*LINES[:2], "scho\u0308n, 10\u00a0000"]
    vocabulary = Vocabulary(SPECIALS, (0, 0, 0))
    pipeline = TextPipeline.of(text, (Bpe(merges),) * 2, (vocabulary,) * 2)
    *code, command = re.findall(r"`(.*?)`", render("subwords.md", text=text))
    assert command == "subword-nmt apply-bpe -c text/bpe.codes"
    split = BPE(io.StringIO(pipeline.contents()["bpe.codes"].decode()))
    for line in lines:
        by_hand = line
        for expression in code:
            by_hand = eval(expression, {**NAMES, "line": by_hand})
        assert split.process_line(" ".join(by_hand)).split() == pipeline.source.split(line)


def test_the_step_of_sentencepiece_returns_our_subwords(tmp_path, monkeypatch):
    model = sentencepiece.learn(LINES * 9, SentencePiece(size=330), normalize=True)
    text = Text.model_validate({"tokenizer": "sentencepiece"})
    types = Vocabulary.of_pieces(model.pieces, {}, text.vocabulary)
    pipeline = TextPipeline.of(text, (model,) * 2, (types,) * 2)
    pipeline.save(tmp_path / "text")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"`(.*\))`", render("subwords.md", text=text))
    for line in LINES:
        assert eval(code, {"SentencePieceProcessor": SentencePieceProcessor, "line": line}) == (
            pipeline.source.split(line)
        )
