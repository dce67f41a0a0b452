"""Vocabulary: every type of one side, or of both, and its id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nmtdeep.config.text import Vocabulary as VocabularyConfig
from nmtdeep.errors import DataError
from nmtdeep.text.files import read_lines

PAD, EOS, UNK = 0, 1, 2
SPECIALS = ("<pad>", "</s>", "<unk>")
LONGEST_COUNT = 18
_FILLER = re.compile(r"<filler\d+>")


def is_reserved(token: str) -> bool:
    """Whether this spelling belongs to the vocabulary itself; in a text it is unknown."""
    return token in SPECIALS or _FILLER.fullmatch(token) is not None


@dataclass(frozen=True)
class Vocabulary:
    """Types by id: `<pad>`, `</s>`, `<unk>`, the text's types by falling count, then fillers.

    A text that spells a special literally gets `<unk>`, never the special.
    """

    tokens: tuple[str, ...]
    counts: tuple[int, ...]

    PAD = PAD
    EOS = EOS
    UNK = UNK

    def __post_init__(self) -> None:
        if self.tokens[: len(SPECIALS)] != SPECIALS:
            raise DataError(f"a vocabulary starts with {', '.join(SPECIALS)}")
        if len(self.tokens) != len(self.counts):
            raise DataError("a vocabulary has one count per type")

    @classmethod
    def build(cls, counts: Mapping[str, int], config: VocabularyConfig) -> Vocabulary:
        """The most frequent types of a text; ties stand in code point order."""
        ranked = sorted(
            (
                (token, count)
                for token, count in counts.items()
                if count >= config.min_count and not is_reserved(token)
            ),
            key=lambda item: (-item[1], item[0]),
        )[: config.max_size]
        size = len(SPECIALS) + len(ranked)
        fillers = [f"<filler{index}>" for index in range(-size % config.multiple)]
        tokens = (*SPECIALS, *(token for token, _ in ranked), *fillers)
        return cls(tokens, (0,) * len(SPECIALS) + tuple(n for _, n in ranked) + (0,) * len(fillers))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self.tokens) if not is_reserved(token)}

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Ids of tokens, without the end of sentence; what is not in the vocabulary is UNK."""
        get = self._ids.get
        return [get(token, UNK) for token in tokens]

    def words(self, ids: Iterable[int]) -> list[str]:
        """Tokens of ids up to the first EOS, without padding."""
        words = []
        for id in ids:
            if id == EOS:
                break
            if id != PAD:
                words.append(self.tokens[id])
        return words

    def dumps(self) -> str:
        """The file's content: one `token<tab>count` per line, in the order of ids."""
        pairs = zip(self.tokens, self.counts, strict=True)
        return "".join(f"{token}\t{count}\n" for token, count in pairs)

    def save(self, path: Path) -> None:
        """Write the file that `load` reads."""
        path.write_bytes(self.dumps().encode("utf-8"))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a vocabulary file; DataError names the file and line that is wrong."""
        tokens: list[str] = []
        counts: list[int] = []
        seen: dict[str, int] = {}
        for number, line in enumerate(read_lines(path), 1):
            token, count = _parse(line, f"{path}:{number}")
            if number <= len(SPECIALS) and token != SPECIALS[number - 1]:
                raise DataError(
                    f"{path}:{number}: expected {SPECIALS[number - 1]}, found {token!r}: {_CURE}"
                )
            if token in seen:
                raise DataError(
                    f"{path}:{number}: {token!r} stands on line {seen[token]} already: {_CURE}"
                )
            seen[token] = number
            tokens.append(token)
            counts.append(count)
        if len(tokens) < len(SPECIALS):
            raise DataError(f"{path}: only {len(tokens)} lines: {_CURE}")
        return cls(tuple(tokens), tuple(counts))


_CURE = "restore the file nmtdeep preprocess wrote, or run it again"


def _parse(line: str, place: str) -> tuple[str, int]:
    token, tab, count = line.partition("\t")
    if not tab or not token or token.split() != [token] or not count.isascii():
        raise DataError(f"{place}: expected a type, a tab and its count: {_CURE}")
    if not count.isdigit() or len(count) > LONGEST_COUNT:
        raise DataError(f"{place}: {count!r} is not a count: {_CURE}")
    return token, int(count)


def shared_or_separate(
    source: Mapping[str, int], target: Mapping[str, int], config: VocabularyConfig
) -> tuple[Vocabulary, Vocabulary]:
    """Source and target vocabulary of training counts; the same object twice if shared."""
    if config.sharing == "separate":
        return Vocabulary.build(source, config), Vocabulary.build(target, config)
    both = dict(source)
    for token, count in target.items():
        both[token] = both.get(token, 0) + count
    vocabulary = Vocabulary.build(both, config)
    return vocabulary, vocabulary


def is_shared(vocabularies: Sequence[Vocabulary]) -> bool:
    """Whether all are one and the same."""
    return all(vocabulary == vocabularies[0] for vocabulary in vocabularies)
