"""What preprocessing does with a chunk of pairs, in worker processes; rows of text in between."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmtdeep.config.text import Clean, MosesBpe, Text
from nmtdeep.preprocessing.language import other_language
from nmtdeep.text.lines import Unreadable
from nmtdeep.text.pipeline import Model, Side, words_of
from nmtdeep.text.sentencepiece import SentencePiece
from nmtdeep.text.vocabulary import EOS, UNK, Vocabulary

Pair = tuple[str, str]
REPEATED, UNREADABLE = "occurs before", "unreadable"
# Hashes that are sorted at a time.
HASHES = 1 << 22


class Tokenized(NamedTuple):
    """A chunk's pairs with spaces between words, and their word counts.

    Attributes:
        reasons: why each pair is to be dropped, as far as its raw text says; empty if it is not.
        hashes: eight bytes of each raw pair, almost certainly different if two pairs are.
    """

    pairs: list[Pair]
    reasons: list[str]
    counts: tuple[Counter[str], Counter[str]]
    hashes: bytes


def tokenize(pairs: Sequence[Pair], config: Text) -> Tokenized:
    """Normalize, tokenize and lower-case as the recipe says.

    Words are only counted together where no BPE is learned of them.
    """
    source = [words_of(line, config, config.source, config.input) for line, _ in pairs]
    target = [words_of(line, config, config.target, config.input) for _, line in pairs]
    return Tokenized(
        list(zip(map(" ".join, source), map(" ".join, target), strict=True)),
        [_unreadable(pair) or other_language(pair, config) for pair in pairs],
        (_counts(source, config), _counts(target, config)),
        b"".join(
            hashlib.blake2b("\n".join(pair).encode(), digest_size=8).digest() for pair in pairs
        ),
    )


def _unreadable(pair: Pair) -> str:
    """Why a pair of a training corpus could not be read; empty if it was."""
    source, target = (isinstance(line, Unreadable) for line in pair)
    if not (source or target):
        return ""
    side = "pair" if source and target else "source" if source else "target"
    line = next(line for line in pair if isinstance(line, Unreadable))
    return f"{UNREADABLE} {side}: {line.reason}"


def _counts(sentences: Sequence[Sequence[str]], config: Text) -> Counter[str]:
    words = chain.from_iterable(sentences)
    if isinstance(config.tokenizer, MosesBpe):
        return Counter(words)
    return Counter({"": sum(map(bool, words))})


def repeated_pairs(path: Path, trained: int, *, at_once: int = HASHES) -> npt.NDArray[np.bool_]:
    """Whether each pair occurs before; of pairs after the `trained` first ones, among these.

    Args:
        path: file of the pairs' hashes. It is read several times, each time for hashes with other
            last bits, so that few are sorted at a time.
    """
    repeated = np.ones(path.stat().st_size // 8, np.bool_)
    parts = 1 << (-(-max(trained, 1) // at_once) - 1).bit_length()
    for part in range(parts):
        places, found, first = [np.empty(0, np.int64)], [np.empty(0, np.uint64)], 0
        with path.open("rb") as stream:
            while len(hashes := np.fromfile(stream, np.uint64, at_once)):
                mine = np.flatnonzero(hashes & np.uint64(parts - 1) == part)
                places.append(first + mine)
                found.append(hashes[mine])
                first += len(hashes)
        numbers, hashes = np.concatenate(places), np.concatenate(found)
        count = int(np.searchsorted(numbers, trained))
        distinct, firsts = np.unique(hashes[:count], return_index=True)
        repeated[numbers[firsts]] = False
        repeated[numbers[count:]] = np.isin(hashes[count:], distinct)
    return repeated


class Segmented(NamedTuple):
    """A chunk's pairs in subwords, their counts, and for some pairs (by index) what is unusual.

    Attributes:
        words: of the pairs that are left, source and target.
    """

    pairs: list[Pair]
    counts: tuple[Counter[str], Counter[str]]
    unusual: list[tuple[int, str]]
    words: list[int]


def segment(
    pairs: Sequence[tuple[str, str, str]],
    models: Sequence[Model | Side],
    clean: Clean,
    *,
    keep: bool,
) -> Segmented:
    """Split into subwords and find the pairs that cleaning drops; `keep` keeps them all.

    Args:
        pairs: words of both sides, and why the pair is to be dropped, if that is known.
        models: of both sides; a side itself knows the codes of target languages.
    """
    result = Segmented([], (Counter(), Counter()), [], [0, 0])
    for index, (*pair, known) in enumerate(pairs):
        words = [sum(map(bool, line.split(" "))) for line in pair]
        source, target = map(_subwords, pair, models)
        reason = known if known.startswith(UNREADABLE) else None
        if clean.max_words is not None:
            for side, count in zip(("source", "target"), words, strict=True):
                if count > clean.max_words:
                    reason = reason or f"{side} longer than {clean.max_words} words"
        reason = reason or reason_to_drop(len(source), len(target), clean) or known
        if reason:
            result.unusual.append((index, reason))
            if not keep:
                continue
        result.counts[0].update(source)
        result.counts[1].update(target)
        for place, count in enumerate(words):
            result.words[place] += count
        result.pairs.append((" ".join(source), " ".join(target)))
    return result


def _subwords(line: str, model: Model | Side) -> list[str]:
    if isinstance(model, Side | SentencePiece):
        return model.split(line)
    words = line.split()
    return words if model is None else model.split(words)


def reason_to_drop(source: int, target: int, clean: Clean, *, unit: str = "subwords") -> str | None:
    """Why a pair of these lengths is not trained on; None if it is."""
    for side, length in (("source", source), ("target", target)):
        if length == 0:
            return f"{side} is empty"
        if length < clean.min_length:
            return f"{side} shorter than {clean.min_length} {unit}"
        if length > clean.max_length:
            return f"{side} longer than {clean.max_length} {unit}"
    if clean.max_ratio is not None and max(source, target) > clean.max_ratio * min(source, target):
        return f"one side more than {clean.max_ratio:g} times the other"
    return None


class Ids(NamedTuple):
    """Ids of one side's sentences in a row, their lengths with EOS, and how many ids are UNK."""

    tokens: npt.NDArray[np.unsignedinteger[Any]]
    lengths: npt.NDArray[np.int64]
    unknown: int


def binarize(
    pairs: Sequence[Pair],
    vocabularies: Sequence[Vocabulary],
    dtypes: Sequence[str],
    *,
    tag: str | None = None,
) -> list[Ids]:
    """Replace the subwords of both sides by ids; `tag` becomes the first token of each source."""
    sides = []
    tags: list[list[int]] = [vocabularies[0].ids([tag]) if tag else [], []]
    for side, (vocabulary, dtype) in enumerate(zip(vocabularies, dtypes, strict=True)):
        # A piece of SentencePiece may hold any white space but a space.
        lines = (list(filter(None, pair[side].split(" "))) for pair in pairs)
        sentences = [[*tags[side], *vocabulary.ids(subwords), EOS] for subwords in lines]
        tokens = np.fromiter(chain.from_iterable(sentences), dtype)
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        sides.append(Ids(tokens, lengths, int((tokens == UNK).sum())))
    return sides


def to_bytes(rows: Iterable[Sequence[str]]) -> bytes:
    """Rows as lines of columns; no word holds a tab."""
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def read_rows(path: Path) -> Iterator[Any]:
    """The rows of a file, each a tuple of its columns."""
    with path.open("rb") as stream:
        for line in stream:
            yield tuple(line.decode().removesuffix("\n").split("\t"))
