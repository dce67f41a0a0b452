"""Toy translation models as tables, and slow searches over them that are easy to believe."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from itertools import product

import torch
from torch import Tensor

PAD, EOS = 0, 1
Prefix = tuple[int, ...]
Row = Callable[[int, Prefix], list[float]]
Translations = list[tuple[Prefix, float]]


@cache
def random_row(seed: int, types: int, sentence: int, prefix: Prefix) -> list[float]:
    """Log-probabilities after a prefix, drawn for it alone."""
    name = zlib.crc32(repr((seed, sentence, prefix)).encode())
    generator = torch.Generator().manual_seed(name)
    draws = 2 * torch.randn(types, generator=generator, dtype=torch.float64)
    return draws.log_softmax(dim=0).tolist()


@cache
def coarse_row(seed: int, types: int, sentence: int, prefix: Prefix) -> list[float]:
    """-1, -2 or -3 for each type, so that most sums tie."""
    name = zlib.crc32(repr((seed, sentence, prefix)).encode())
    generator = torch.Generator().manual_seed(name)
    return (-torch.randint(1, 4, (types,), generator=generator)).double().tolist()


class Table:
    """A model that looks up what may follow; both the state and the step of a search."""

    def __init__(self, row: Row, sentences: list[int], size: int) -> None:
        self.row = row
        self.rows: list[tuple[int, Prefix]] = [(sentence, ()) for sentence in sentences]
        self.size = size
        self.started = False
        self.calls: list[int] = []

    def step(self, tokens: Tensor, state: Table) -> Tensor:
        """Log-probabilities of the next token of every row."""
        assert state is self
        self.calls.append(len(tokens))
        if self.started:
            self.rows = [
                (sentence, (*prefix, token))
                for (sentence, prefix), token in zip(self.rows, tokens.tolist(), strict=True)
            ]
        else:
            assert set(tokens.tolist()) == {EOS}
        self.started = True
        table = [self.row(sentence, prefix) for sentence, prefix in self.rows]
        return torch.tensor(table, dtype=torch.float64)

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Reorder; check that a sentence keeps its rows and that the named ones stay."""
        assert all(0 <= row < len(self.rows) for row in rows.tolist())
        before = [sentence for sentence, _ in self.rows[:: self.size if len(self.calls) > 1 else 1]]
        stay = range(len(before)) if sentences is None else sentences.tolist()
        self.rows = [self.rows[row] for row in rows.tolist()]
        expected = [before[place] for place in stay for _ in range(self.size)]
        assert [sentence for sentence, _ in self.rows] == expected


def enumerated(row: Row, sentence: int, limit: int, types: int) -> Translations:
    """Every translation of at most `limit` tokens, the end included, and its log-probability."""
    translations = []
    for length in range(1, limit + 1):
        for words in product(range(2, types), repeat=length - 1):
            if words or limit == 1:
                tokens = (*words, EOS)
                translations.append((tokens, total(row, sentence, tokens)))
    return translations


def total(row: Row, sentence: int, tokens: Prefix) -> float:
    """Sum of the table's log-probabilities along a translation."""
    return sum(row(sentence, tokens[:place])[token] for place, token in enumerate(tokens))


def slow_beam(
    row: Row,
    sentence: int,
    limit: int,
    size: int,
    types: int,
    bound: float | None = None,
    *,
    may_end: bool = False,
) -> Translations:
    """Beam search by fairseq's rules with plain lists; among equals the lower index comes first.

    With `bound`, the exponent of a length penalty, a search of `size` ended translations goes on
    while the best one that has not ended is better than the worst of them.

    Args:
        may_end: whether the first token may be the end.
    """
    going: Translations = [((), 0.0)]
    done: Translations = []
    for length in range(1, limit + 1):
        candidates = []
        for index, (prefix, score) in enumerate(going):
            for token, log_prob in enumerate(row(sentence, prefix)):
                forced = length == limit
                if token == PAD or (forced and token != EOS):
                    continue
                if token == EOS and length == 1 and not (forced or may_end):
                    continue
                candidates.append((-(score + log_prob), index * types + token, prefix, token))
        candidates = sorted(candidates)[: 2 * size]
        for negative, _, prefix, token in candidates[:size]:
            if token == EOS:
                done.append(((*prefix, EOS), -negative))
        others = [candidate for candidate in candidates if candidate[3] != EOS]
        if len(done) >= size:
            if bound is None or not others:
                return done
            scores = sorted(score / len(tokens) ** bound for tokens, score in done)
            if -others[0][0] / length**bound <= scores[-size]:
                return done
        going = [((*prefix, token), -negative) for negative, _, prefix, token in others[:size]]
    return done
