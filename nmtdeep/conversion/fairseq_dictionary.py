"""Dictionaries of fairseq as vocabularies of nmtdeep, and the order of the embeddings' rows."""

from __future__ import annotations

from pathlib import Path

from nmtdeep.errors import DataError, Problem
from nmtdeep.text.files import read_lines
from nmtdeep.text.vocabulary import LONGEST_COUNT, SPECIALS, Vocabulary, is_reserved

# fairseq's first ids, which its files do not list: beginning, padding, end of sentence, unknown.
BOS, PAD, EOS, UNK, FIRST = 0, 1, 2, 3, 4
# The beginning of a sentence has a row in the output, so it stays, as a type that no text has.
FILLER = "<filler0>"
HINT = "pass the dict.LANG.txt that the model was trained with"


def read_dictionary(path: Path) -> Vocabulary:
    """A dictionary's types in the order of its lines, after our special types.

    Raises:
        DataError: for each of the first three invalid lines.
    """
    tokens: dict[str, int] = {}
    problems = []
    for number, line in enumerate(read_lines(path), 1):
        place = f"{path}:{number}"
        token, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if token.split() != [token] or not (count.isascii() and count.isdigit()):
            problems.append(Problem("expected a type, a space and its count", place, HINT))
        elif is_reserved(token) or token == "<s>":
            problems.append(Problem(f"{token} is a reserved mark", place, HINT))
        elif token in tokens:
            problems.append(Problem(f"{token!r} occurs twice", place, HINT))
        else:
            tokens[token] = int(count[:LONGEST_COUNT])
        if len(problems) == 3:
            break
    if problems:
        raise DataError(problems=problems)
    return Vocabulary((*SPECIALS, *tokens, FILLER), (*(0,) * len(SPECIALS), *tokens.values(), 0))


def rows(types: int) -> list[int]:
    """For each of our ids, the row in fairseq's embeddings of so many `types`."""
    return [PAD, EOS, UNK, *range(FIRST, types), BOS]
