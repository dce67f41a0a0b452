"""Differences between a translation and its reference, word by word."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from nmtdeep.tools.report.parts import Piece

# Scripts without spaces between words are compared letter by letter, punctuation apart from words.
_ALONE = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_MARKS = (
    r"!-/:-@\[-`{-~\u00a1\u00ab\u00b7\u00bb\u00bf\u060c\u061b\u061f\u2010-\u2027\u2030-\u205e"
    r"\u3001-\u303f\uff01-\uff0f"
)
_WORDS = re.compile(rf"([{_ALONE}]|[{_MARKS}]|[^\s{_ALONE}{_MARKS}]+)(\s*)")


def marked(translation: str, reference: str) -> list[Piece]:
    """The translation in pieces; without the gaps, they are its text."""
    tokens = _WORDS.findall(translation)
    words, expected = [word for word, _ in tokens], [word for word, _ in _WORDS.findall(reference)]
    lead = translation[: len(translation) - len(translation.lstrip())]
    pieces = [Piece(lead, "same")] if lead else []
    matcher = SequenceMatcher(None, expected, words, autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind == "delete":
            pieces.append(Piece(" ".join(expected[first:last]), "gap"))
            continue
        text = "".join(word + space for word, space in tokens[begin:end])
        if kind == "equal":
            pieces.append(Piece(text, "same"))
        else:
            inside = text.rstrip()
            pieces.append(Piece(inside, "other"))
            pieces += [Piece(text[len(inside) :], "same")] if inside != text else []
    return pieces
