"""Vocabulary: every type of one side, or of both, and its id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from nmtdeep.config.text import Vocabulary as VocabularyConfig
from nmtdeep.errors import DataError
from nmtdeep.text.lines import read_lines

PAD, EOS, UNK = 0, 1, 2
SPECIALS = ("<pad>", "</s>", "<unk>")
LONGEST_COUNT = 18
HINT = "restore the file that nmtdeep preprocess wrote, or run it again"
_FILLER = re.compile(r"<filler\d+>")


def is_reserved(token: str) -> bool:
    """Whether this spelling is reserved by the vocabulary; in a text it is unknown."""
    return token in SPECIALS or _FILLER.fullmatch(token) is not None


@dataclass(frozen=True)
class Vocabulary:
    """Types by id: `<pad>`, `</s>`, `<unk>`, the text's types by falling count, then fillers.

    A text that spells a special literally gets `<unk>`, never the special.
    """

    tokens: tuple[str, ...]
    counts: tuple[int, ...]

    @classmethod
    def build(cls, counts: Mapping[str, int], config: VocabularyConfig) -> Vocabulary:
        """The most frequent types of a text; ties are in code point order."""
        kept = [
            (token, count)
            for token, count in counts.items()
            if count >= config.min_count and not is_reserved(token)
        ]
        ranked = sorted(kept, key=lambda item: (-item[1], item[0]))
        return cls._padded(ranked[: config.max_size], config)

    @classmethod
    def of_pieces(
        cls, pieces: Iterable[str], counts: Mapping[str, int], config: VocabularyConfig
    ) -> Vocabulary:
        """The pieces of a SentencePiece model in its order, with their counts in a text."""
        kept = (each for each in pieces if each and "\n" not in each and not is_reserved(each))
        return cls._padded([(piece, counts.get(piece, 0)) for piece in kept], config)

    @classmethod
    def _padded(cls, types: Sequence[tuple[str, int]], config: VocabularyConfig) -> Vocabulary:
        size = len(SPECIALS) + len(types)
        fillers = [f"<filler{index}>" for index in range(-size % config.multiple)]
        tokens = (*SPECIALS, *(token for token, _ in types), *fillers)
        return cls(tokens, (0,) * len(SPECIALS) + tuple(n for _, n in types) + (0,) * len(fillers))

    def extended(self, types: Mapping[str, int], config: VocabularyConfig) -> Vocabulary:
        """With more types and their counts, after those of the text."""
        known = zip(self.tokens, self.counts, strict=True)
        old = [each for each in known if not is_reserved(each[0])]
        new = [each for each in types.items() if each[0] not in self]
        return self._padded([*old, *new], config)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self.tokens) if not is_reserved(token)}

    @cached_property
    def fillers(self) -> tuple[int, ...]:
        """Ids of types that no text has."""
        return tuple(id for id, token in enumerate(self.tokens) if _FILLER.fullmatch(token))

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Ids of tokens, without the end of sentence; what is not in the vocabulary is UNK."""
        get = self._ids.get
        return [get(token, UNK) for token in tokens]

    def words(self, ids: Iterable[int]) -> list[str]:
        """Tokens of ids up to the first EOS, without padding."""
        before_end = takewhile(lambda id: id != EOS, ids)
        return [self.tokens[id] for id in before_end if id != PAD]

    def dumps(self) -> str:
        """The file's content: one `token<tab>count` per line, in the order of ids."""
        pairs = zip(self.tokens, self.counts, strict=True)
        return "".join(f"{token}\t{count}\n" for token, count in pairs)

    @classmethod
    def load(cls, path: Path, *, spaces: bool = False) -> Vocabulary:
        """Read a vocabulary file; DataError names the file and line that is wrong.

        Args:
            spaces: whether a type may hold white space, as pieces of SentencePiece do.
        """
        counts: dict[str, int] = {}
        for number, line in enumerate(read_lines(path), 1):
            token, tab, count = line.rpartition("\t")
            problem = ""
            whole = bool(token) if spaces else token.split() == [token]
            if not tab or not whole or not count.isascii() or not count.isdigit():
                problem = "expected a type, a tab and its count"
            elif len(count) > LONGEST_COUNT:
                problem = f"{count!r} is not a count"
            elif number <= len(SPECIALS) and token != SPECIALS[number - 1]:
                problem = f"expected {SPECIALS[number - 1]}, not {token!r}"
            elif token in counts:
                problem = f"{token!r} is on line {list(counts).index(token) + 1} already"
            if problem:
                raise DataError(problem, where=f"{path}:{number}", hint=HINT)
            counts[token] = int(count)
        if len(counts) < len(SPECIALS):
            raise DataError(f"only {len(counts)} lines", where=path, hint=HINT)
        return cls(tuple(counts), tuple(counts.values()))


def shared_or_separate(
    source: Mapping[str, int],
    target: Mapping[str, int],
    config: VocabularyConfig,
    pieces: Sequence[Iterable[str]] = (),
) -> tuple[Vocabulary, Vocabulary]:
    """Source and target vocabulary of training counts; the same object twice if shared.

    Args:
        pieces: of each side's SentencePiece model; without any, the types are those counted.
    """
    counts = [Counter(source) + Counter(target)] if config.sharing == "shared" else [source, target]
    built = [Vocabulary.of_pieces(*each, config) for each in zip(pieces, counts, strict=False)]
    built = built or [Vocabulary.build(each, config) for each in counts]
    return built[0], built[-1]
