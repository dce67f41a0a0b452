"""What the README of an export says of text is what the pipeline does."""

from __future__ import annotations

import io
import re

import pytest
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE

from nmtdeep.config.text import Text
from nmtdeep.export.instructions import steps
from nmtdeep.text.bpe import Bpe, learn
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import SPECIALS, Vocabulary

NAMES = {"MosesPunctNormalizer": MosesPunctNormalizer, "MosesTokenizer": MosesTokenizer}
LINES = [
    "“Well-known”  things: it’s 3 o'clock — isn't it?",
    "A man's dog, e.g. a Great Dane & a cat [both] cost $5.50…",
    "<unk> schön, naïve… 100% @-@ well-known\u00a0words",
]


@pytest.mark.parametrize("hyphens", [False, True])
@pytest.mark.parametrize("lowercase", [False, True])
def test_the_steps_by_hand_give_our_subwords(hyphens: bool, lowercase: bool) -> None:
    merges = learn({"things": 4, "thing": 3, "cat": 2, "cats": 2, "known": 5}, 12)
    text = Text.model_validate({"aggressive_hyphens": hyphens, "lowercase": lowercase})
    vocabulary = Vocabulary(SPECIALS, (0, 0, 0))
    pipeline = TextPipeline.of(text, (Bpe(merges),) * 2, (vocabulary,) * 2)
    shown = [re.findall(r"`(.*)`", step)[0] for step in steps(text)]
    *code, command = shown
    assert command == "subword-nmt apply-bpe -c text/bpe.codes"
    split = BPE(io.StringIO(pipeline.contents()["bpe.codes"]))
    for line in LINES:
        by_hand = line
        for expression in code:
            by_hand = eval(expression, {**NAMES, "line": by_hand})
        assert split.process_line(" ".join(by_hand)).split() == pipeline.split_source(line)


def test_no_step_is_shown_that_is_not_done() -> None:
    text = Text.model_validate({"input": "bpe", "bpe": "none"})
    assert steps(text) == ["nothing: give subwords"]
