"""Real text in many scripts comes back. `django/lines.tsv` is from Django's translation files."""

from pathlib import Path

import pytest

from nmtdeep.config.text import Text
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.sentencepiece import learn
from nmtdeep.text.vocabulary import UNK, Vocabulary

ROWS = (Path(__file__).parent / "django" / "lines.tsv").read_text(encoding="utf-8").splitlines()
LANGUAGES = sorted({row.split("\t")[0] for row in ROWS})


def pipeline(language, lines, **tokenizer):
    """A pipeline whose model is learned from lines of one language."""
    settings = {"type": "sentencepiece", "size": 500, **tokenizer}
    text = {"source": "en", "target": language, "normalize": False, "tokenizer": settings}
    config = Text.model_validate(text)
    model = learn(lines, config.tokenizer, normalize=False)
    vocabulary = Vocabulary.of_pieces(model.pieces, {}, config.vocabulary)
    return TextPipeline.of(config, (model, model), (vocabulary, vocabulary))


def back(text, line):
    side = text.target
    return side.join(side.vocabulary.words(side.encode(line)))


def lines_of(language):
    return [row.split("\t")[2] for row in ROWS if row.startswith(f"{language}\t")]


@pytest.mark.parametrize("model", ["unigram", "bpe"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_lines_come_back(language, model):
    """Half of the lines are learned from; the others have characters that are no piece."""
    lines = lines_of(language)
    text = pipeline(language, lines[::2], model=model)
    assert len(lines) == 15
    assert [back(text, line) for line in lines] == lines
    assert not any(UNK in text.target.encode(line) for line in lines)
