"""Beam search that knows neither model nor vocabulary.

`step(tokens, state)` returns the log-probabilities of what may follow; a test drives it
with a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

Penalty = Callable[[int], float]


class SearchState(Protocol):
    """What a step remembers, rows grouped by sentence."""

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Reorder hypotheses `rows`; `sentences` are those that stay, None if all do."""


class Step(Protocol):
    """One decoding step."""

    def __call__(self, tokens: Tensor, state: SearchState) -> Tensor:
        """Log-probabilities `(rows, types)` after the newest `tokens` `(rows,)`."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    Attributes:
        tokens: ids, end of sentence included.
        log_prob: sum of their log-probabilities.
        score: log_prob divided by the length penalty; hypotheses are ranked by it.
        each: log-probability of each token.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    each: tuple[float, ...] = ()


def no_penalty(length: int) -> float:
    """1 for every length: hypotheses are ranked by their plain sum."""
    return 1.0


def length_penalty(form: str, alpha: float) -> Penalty:
    """The divisor of a hypothesis of `len` tokens, end of sentence included.

    gnmt: ((5 + len) / 6)^alpha (Wu et al. 2016, Eq. 14 without coverage); length: len^alpha
    (fairseq, CTranslate2); none: 1.
    """
    match form:
        case "gnmt":
            return lambda length: ((5 + length) / 6) ** alpha
        case "length":
            return lambda length: length**alpha
        case "none":
            return no_penalty
        case _:
            raise ValueError(f"unknown length penalty {form}")


class Grown(NamedTuple):
    """Unfinished hypotheses.

    Attributes:
        tokens: `(sentences, size, length)` ids so far.
        sums: `(sentences, size, length)` log-probability up to each of them.
    """

    tokens: Tensor
    sums: Tensor

    def grow(self, origin: Tensor, token: Tensor, score: Tensor) -> Grown:
        """Go on from hypotheses `origin` with `token`, each `(sentences, size)`."""
        index = origin[:, :, None].expand(-1, -1, self.tokens.shape[2])
        return Grown(
            torch.cat((self.tokens.gather(1, index), token[:, :, None]), dim=2),
            torch.cat((self.sums.gather(1, index), score[:, :, None].double()), dim=2),
        )

    def keep(self, sentences: Tensor) -> Grown:
        """Drop the other sentences."""
        return Grown(self.tokens[sentences], self.sums[sentences])


@torch.inference_mode()
def beam(
    step: Step,
    state: SearchState,
    *,
    max_lengths: Tensor,
    size: int,
    eos: int,
    forbidden: Sequence[int] = (),
    penalty: Penalty = no_penalty,
) -> list[list[Hypothesis]]:
    """The best `size` hypotheses of each sentence, best first.

    fairseq's rules: of the best 2 * size continuations, those that end a sentence count if they
    rank among the first `size`; the best `size` others go on; a sentence is done when it has `size`
    finished hypotheses or reaches its length limit, where the end is forced. The first token may
    not be the end. Ties go to the lower index.

    Args:
        step: next log-probabilities; called with `eos` first.
        state: for `sentences * size` rows; reordered through its `select`.
        max_lengths: `(sentences,)` tokens at most, end of sentence included.
        size: beam size.
        eos: id that starts and ends a sentence.
        forbidden: ids never produced.
        penalty: divisor of a hypothesis of that many tokens.
    """
    device = max_lengths.device
    count = len(max_lengths)
    finished: list[list[Hypothesis]] = [[] for _ in range(count)]
    active = torch.arange(count, device=device)
    tokens = torch.full((count * size,), eos, device=device)
    grown = Grown(
        torch.empty((count, size, 0), dtype=torch.int64, device=device),
        torch.empty((count, size, 0), dtype=torch.float64, device=device),
    )
    scores: Tensor | None = None
    length = 0
    while len(active):
        length += 1
        log_probs = step(tokens, state).view(len(active), size, -1)
        if scores is None:
            # All hypotheses of a sentence are alike before the first token: keep one.
            scores = torch.full((count, size), -math.inf, dtype=log_probs.dtype, device=device)
            scores[:, 0] = 0
        totals = _allowed(log_probs, length, max_lengths[active], eos, forbidden)
        totals += scores[:, :, None]
        best, origin, token = _candidates(totals, size)
        ends = token == eos
        for place, ended in _ended(grown, best, origin, ends, size, penalty, eos):
            finished[int(active[place])].append(ended)
        scores, origin, token = _continue(best, origin, token, ends, size)
        grown = grown.grow(origin, token, scores)
        limit = max_lengths[active].tolist()
        going = [
            place
            for place, sentence in enumerate(active.tolist())
            if len(finished[sentence]) < size and length < limit[place]
        ]
        rows = origin + torch.arange(len(active), device=device)[:, None] * size
        stay = None
        if len(going) < len(active):
            stay = torch.tensor(going, dtype=torch.int64, device=device)
            active, grown, scores = active[stay], grown.keep(stay), scores[stay]
            token, rows = token[stay], rows[stay]
        if len(active):
            state.select(rows.flatten(), stay)
            tokens = token.flatten()
    return [sorted(found, key=lambda one: -one.score)[:size] for found in finished]


def _allowed(
    log_probs: Tensor, length: int, limits: Tensor, eos: int, forbidden: Sequence[int]
) -> Tensor:
    """A copy of `(sentences, size, types)` with -inf where a token may not come."""
    totals = log_probs.clone()
    for token in forbidden:
        totals[:, :, token] = -math.inf
    if length == 1:
        # An end as first token is allowed only where there is room for nothing else.
        totals[:, :, eos].masked_fill_((limits > 1)[:, None], -math.inf)
    full = limits <= length
    if bool(full.any()):
        ending = log_probs[full][:, :, eos]
        totals[full] = -math.inf
        totals[full, :, eos] = ending
    return totals


def _candidates(totals: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Best 2 * size continuations `(sentences, candidates)`: score, hypothesis and token."""
    types = totals.shape[2]
    flat = totals.flatten(1)
    count = min(2 * size, flat.shape[1])
    best, index = flat.topk(count, dim=1)
    index = _lowest(flat, best[:, -1:], index).sort(dim=1).values
    best, order = flat.gather(1, index).sort(dim=1, descending=True, stable=True)
    index = index.gather(1, order)
    return best, index // types, index % types


def _lowest(flat: Tensor, least: Tensor, index: Tensor) -> Tensor:
    """`index` of the best of each row, ties for the last place (`least`) given to the lowest.

    `topk` gives it to any of them.
    """
    count = index.shape[1]
    crowded = ((flat >= least).sum(dim=1, keepdim=True) > count) & least.isfinite()
    if not bool(crowded.any()):
        return index
    above, tied = flat > least, flat == least
    room = count - above.sum(dim=1, keepdim=True)
    chosen = above | (tied & (tied.cumsum(dim=1) <= room))
    return chosen.to(torch.uint8).topk(count, dim=1).indices


def _ended(
    grown: Grown,
    best: Tensor,
    origin: Tensor,
    ends: Tensor,
    size: int,
    penalty: Penalty,
    eos: int,
) -> Iterator[tuple[int, Hypothesis]]:
    """Candidates that end a sentence and rank among its first `size`, with the sentence's place."""
    for place, rank in (ends & best.isfinite())[:, :size].nonzero().tolist():
        row = int(origin[place, rank])
        log_prob = float(best[place, rank])
        tokens = (*grown.tokens[place, row].tolist(), eos)
        sums = [0.0, *grown.sums[place, row].tolist(), log_prob]
        each = tuple(after - before for before, after in pairwise(sums))
        yield place, Hypothesis(tokens, log_prob, log_prob / penalty(len(tokens)), each)


def _continue(
    best: Tensor, origin: Tensor, token: Tensor, ends: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The first `size` candidates that do not end: score, hypothesis and token."""
    order = ends.to(torch.int8).sort(dim=1, stable=True).indices[:, :size]
    scores = best.masked_fill(ends, -math.inf).gather(1, order)
    return scores, origin.gather(1, order), token.gather(1, order)


@torch.inference_mode()
def sample(
    step: Step,
    state: SearchState,
    *,
    max_lengths: Tensor,
    eos: int,
    forbidden: Sequence[int] = (),
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
) -> list[list[Hypothesis]]:
    """Draw one hypothesis for each sentence from the model's distribution.

    Args:
        step: next log-probabilities; called with `eos` first.
        state: for one row per sentence.
        max_lengths: `(sentences,)` tokens at most, end of sentence included.
        eos: id that starts and ends a sentence.
        forbidden: ids never produced.
        temperature: divides the log-probabilities.
        top_k: draw from the k most probable tokens only; 0: from all.
        top_p: draw from the smallest set of tokens whose mass reaches p (Holtzman et al. 2020).
        generator: source of randomness.
    """
    count = len(max_lengths)
    rows = torch.arange(count, device=max_lengths.device)
    tokens = torch.full((count,), eos, device=max_lengths.device)
    drawn: list[list[int]] = [[] for _ in range(count)]
    each: list[list[float]] = [[] for _ in range(count)]
    length = 0
    while len(rows):
        length += 1
        log_probs = step(tokens, state)
        allowed = _allowed(log_probs[:, None], length, max_lengths[rows], eos, forbidden)[:, 0]
        shaped = _truncated((allowed / temperature).softmax(dim=1), top_k, top_p)
        tokens = torch.multinomial(shaped, 1, generator=generator)[:, 0]
        chosen = log_probs.gather(1, tokens[:, None])[:, 0].tolist()
        for row, token, value in zip(rows.tolist(), tokens.tolist(), chosen, strict=True):
            drawn[row].append(token)
            each[row].append(value)
        stay = (tokens != eos).nonzero()[:, 0]
        if len(stay) < len(rows):
            rows, tokens = rows[stay], tokens[stay]
            state.select(stay, stay)
    return [
        [Hypothesis(tuple(ids), sum(values), sum(values), tuple(values))]
        for ids, values in zip(drawn, each, strict=True)
    ]


def _truncated(probabilities: Tensor, top_k: int, top_p: float) -> Tensor:
    """Zero what neither the k best nor the nucleus holds; not normalised again."""
    if top_k == 0 and top_p >= 1:
        return probabilities
    ordered, index = probabilities.sort(dim=1, descending=True, stable=True)
    # A token stays if the mass before it is still below p, so the best one always does.
    keep = ordered.cumsum(dim=1) - ordered < top_p
    if top_k:
        keep[:, top_k:] = False
    return torch.zeros_like(probabilities).scatter_(1, index, ordered * keep)
