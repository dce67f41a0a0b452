"""Share of lines that come back exactly, by language and settings of the section `text`.

    python benchmarks/round_trip.py ja FILE.ja pt-BR FILE.pt-BR

Every second line of a file is learned from; the others are split into pieces and joined again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from nmtdeep.config.text import SentencePiece, Text
from nmtdeep.tables import table
from nmtdeep.text.lines import read_lines
from nmtdeep.text.pipeline import Side
from nmtdeep.text.sentencepiece import learn
from nmtdeep.text.vocabulary import Vocabulary
from nmtdeep.units import percent

PIECES = {"type": "sentencepiece", "size": 4000}
SETTINGS = {
    "moses_bpe": {"bpe": "none", "normalize": False},
    "sentencepiece": {"tokenizer": PIECES, "normalize": False},
    "no bytes": {"tokenizer": PIECES | {"byte_fallback": False}, "normalize": False},
    "NFKC": {"tokenizer": PIECES, "normalize": True},
}


def returned(lines: Sequence[str], language: str, settings: dict[str, object]) -> float:
    """Share of the lines with odd numbers, counted from 0, that come back."""
    config = Text.model_validate({"source": "en", "target": language} | settings)
    model, types = None, Vocabulary((), ())
    if isinstance(config.tokenizer, SentencePiece):
        model = learn(lines[::2], config.tokenizer, normalize=config.normalize)
        types = Vocabulary.of_pieces(model.pieces, {}, config.vocabulary)
    side = Side(config, language, model, types)
    split = side.split if model is None else lambda line: types.words(side.encode(line))
    return sum(side.join(split(line)) == line for line in lines[1::2]) / len(lines[1::2])


def main(words: Sequence[str]) -> None:
    rows = []
    for language, path in zip(words[::2], words[1::2], strict=True):
        lines = [line for line in read_lines(path) if line.strip()]
        shares = [returned(lines, language, settings) for settings in SETTINGS.values()]
        rows.append((language, f"{len(lines[1::2]):,}", *map(percent, shares)))
    Console().print(table(("language", "lines", *SETTINGS), rows, title="Lines that come back"))


if __name__ == "__main__":
    main(sys.argv[1:])
