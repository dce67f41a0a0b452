"""Beam search, independent of models and vocabularies.

`step(tokens, state)` returns the log-probabilities of the next tokens; a test drives it with a
table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64
Penalty = Callable[[int], float]


class SearchState(Protocol):
    """The memory of a step, rows grouped by sentence."""

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep hypotheses `rows`; `sentences` are those that stay, None if all do."""


class Step(Protocol):
    """One decoding step."""

    def __call__(self, tokens: Tensor, state: SearchState) -> Tensor:
        """Log-probabilities `(rows, types)` after the newest `tokens` `(rows,)`.

        The search writes into them.
        """


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


class Expansion(NamedTuple):
    """The result of one step of a search, row by row of the sentences that were active.

    Attributes:
        active: numbers of these sentences.
        origin: `(sentences, size)`, the hypothesis that each continuing one extends.
        token: the token that extends it.
        total: its log-probability.
        ended_origin: `(sentences, size)`, the same of candidates that ended the sentence.
        ended_total: -inf where there is no such candidate.
    """

    active: list[int]
    origin: Tensor
    token: Tensor
    total: Tensor
    ended_origin: Tensor
    ended_total: Tensor


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
    wanted: int | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first.

    fairseq's rules: of the best 2 * size continuations, those that end a sentence count if they
    rank among the first `size`; the best `size` others continue; a sentence is done when it has
    `size` finished hypotheses or reaches its length limit, where the end is forced. The first token
    may not be the end. Ties go to the lower index. A sentence is done earlier if no unfinished one
    can still rank among the best `wanted`, by a bound on its score: its sum so far, divided by the
    penalty of the greatest length.

    The host reads from the device only which sentences are done, once per step.

    Args:
        step: next log-probabilities; called with `eos` first, one row for each sentence, and from
            then on with `size` rows for each.
        state: reordered through its `select`.
        max_lengths: `(sentences,)` tokens at most, end of sentence included.
        size: beam size.
        eos: id that starts and ends a sentence.
        forbidden: ids that are never produced.
        penalty: divisor of a hypothesis by its number of tokens; must not decrease.
        wanted: number of hypotheses to return; None: `size`.
    """
    device = max_lengths.device
    limits = max_lengths.tolist()
    active = list(range(len(limits)))
    finished = torch.zeros(len(active), dtype=torch.int64, device=device)
    wanted = size if wanted is None else wanted
    scores = torch.full((len(active), wanted), -math.inf, dtype=torch.float64, device=device)
    reach = torch.tensor([penalty(limit) for limit in limits], dtype=torch.float64, device=device)
    totals = torch.zeros(len(active), 1, device=device)
    tokens = torch.full((len(active),), eos, device=device)
    history: list[Expansion] = []
    while active:
        log_probs = step(tokens, state)
        room = [limits[sentence] - len(history) for sentence in active]
        forbid(
            log_probs.view(len(active), -1, log_probs.shape[1]), room, not history, eos, forbidden
        )
        expansion = _expand(active, log_probs, totals.to(log_probs.dtype), size, eos)
        history.append(expansion)
        finished += expansion.ended_total.isfinite().sum(dim=1)
        ended = expansion.ended_total.double() / penalty(len(history))
        scores = torch.cat((scores, ended), dim=1).topk(wanted, dim=1).values
        hopeless = expansion.total.amax(dim=1).double() / reach <= scores[:, -1]
        over = ((finished >= size) | hopeless).tolist()
        done = [enough or left <= 1 for enough, left in zip(over, room, strict=True)]
        first = torch.arange(len(active), device=device)[:, None] * totals.shape[1]
        rows, token, totals = expansion.origin + first, expansion.token, expansion.total
        stay = None
        if any(done):
            places = _closed_up(done)
            active = [active[place] for place in places]
            stay = torch.tensor(places, dtype=torch.int64, device=device)
            rows, token, totals = rows[stay], token[stay], totals[stay]
            finished, scores, reach = finished[stay], scores[stay], reach[stay]
        if active:
            state.select(rows.flatten(), stay)
            tokens = token.flatten()
    return _read_out(history, len(limits), size, wanted, eos, penalty)


def forbid(
    log_probs: Tensor, room: Sequence[int], first: bool, eos: int, forbidden: Sequence[int]
) -> None:
    """Write -inf into `(sentences, hypotheses, types)` where a token is not allowed.

    Args:
        room: number of tokens that each sentence may still have.
        first: whether this is the first token.
    """
    for token in forbidden:
        log_probs[:, :, token] = -math.inf
    full = [place for place, left in enumerate(room) if left <= 1]
    if full:
        ending = log_probs[full, :, eos]
    if first:
        # The end is allowed as the first token only where it is also the last.
        log_probs[:, :, eos] = -math.inf
    if full:
        log_probs[full] = -math.inf
        log_probs[full, :, eos] = ending


def _expand(active: list[int], log_probs: Tensor, totals: Tensor, size: int, eos: int) -> Expansion:
    """The best continuations of hypotheses with `totals` `(sentences, hypotheses)` so far."""
    if size == 1:
        best, token = _best_of_each(log_probs)
        best = totals + best
        origin = torch.zeros_like(token)
        ended = best.masked_fill(token != eos, -math.inf)
        return Expansion(active, origin, token, best, origin, ended)
    best, origin, token = _candidates(log_probs, totals, size, eos)
    ends = token == eos
    ended = best.masked_fill(~ends, -math.inf)[:, :size]
    order = ends.to(torch.int8).sort(dim=1, stable=True).indices[:, :size]
    going = best.masked_fill(ends, -math.inf)
    going, from_, next_ = (part.gather(1, order) for part in (going, origin, token))
    return Expansion(active, from_, next_, going, origin[:, :size], ended)


def _candidates(
    log_probs: Tensor, totals: Tensor, size: int, eos: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Best 2 * size continuations `(sentences, 2 * size)`: total, hypothesis and token.

    If there are fewer, the rest are ends with a total of -inf.
    """
    each = min(2 * size, log_probs.shape[1])
    token = _top_of_each(log_probs, each)
    flat = (log_probs.gather(1, token) + totals.view(-1, 1)).view(len(totals), -1)
    token = token.view(flat.shape)
    index = _first_of_each(flat, min(2 * size, flat.shape[1]))
    best, order = flat.gather(1, index).sort(dim=1, descending=True, stable=True)
    index = index.gather(1, order)
    origin, token = index // each, token.gather(1, index)
    missing = (0, 2 * size - index.shape[1])
    return (
        F.pad(best, missing, value=-math.inf),
        F.pad(origin, missing),
        F.pad(token, missing, value=eos),
    )


def _best_of_each(x: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest of each row and its first column, `(rows, 1)` each."""
    inside = _top_blocks(x, 1)
    best, place = x.gather(1, inside).max(dim=1, keepdim=True)
    return best, inside.gather(1, place)


def _top_of_each(x: Tensor, count: int) -> Tensor:
    """Columns of the `count` greatest elements of each row, ascending; ties go to the first ones.

    They are in the `count` blocks of columns with the greatest maxima: a scan for maxima and a
    choice among few are much faster than `topk` on rows of thousands.
    """
    inside = _top_blocks(x, count)
    return inside.gather(1, _first_of_each(x.gather(1, inside), count))


def _top_blocks(x: Tensor, count: int) -> Tensor:
    """Columns, ascending, of the `count` blocks with the greatest maxima, and of the last ones."""
    columns = torch.arange(x.shape[1], device=x.device)
    blocks = x.shape[1] // BLOCK
    if blocks <= count:
        return columns.expand(len(x), -1)
    whole, rest = columns[: blocks * BLOCK].view(blocks, BLOCK), columns[blocks * BLOCK :]
    chosen = _first_of_each(x[:, : blocks * BLOCK].view(-1, blocks, BLOCK).amax(dim=2), count)
    return torch.cat((whole[chosen].flatten(1), rest.expand(len(x), -1)), dim=1)


def _first_of_each(x: Tensor, count: int) -> Tensor:
    """Columns of the `count` greatest elements of each row, ascending; ties go to the first ones.

    Among those that tie for the last place, `topk` chooses any.
    """
    best, index = x.topk(count, dim=1)
    least = best[:, -1:]
    crowded = ((x >= least).sum(dim=1, keepdim=True) > count) & least.isfinite()
    # Reading the answer from a GPU costs more than the few operations that it saves.
    if x.device.type != "cpu" or bool(crowded.any()):
        above, tied = x > least, x == least
        room = count - above.sum(dim=1, keepdim=True)
        chosen = above | (tied & (tied.cumsum(dim=1) <= room))
        index = chosen.to(torch.uint8).topk(count, dim=1).indices
    return index.sort(dim=1).values


def _closed_up(done: Sequence[bool]) -> list[int]:
    """Places that are not done, the last ones moved to the empty places before them."""
    going = [place for place, over in enumerate(done) if not over]
    return [going.pop() if done[place] else place for place in range(len(going))]


def _read_out(
    history: Sequence[Expansion], count: int, size: int, wanted: int, eos: int, penalty: Penalty
) -> list[list[Hypothesis]]:
    """The best `wanted` hypotheses of each sentence, each followed back to its beginning."""
    origins = np.zeros((len(history), count, size), dtype=np.int64)
    tokens, totals = origins.copy(), np.zeros(origins.shape)
    ends: list[list[tuple[float, float, int, int]]] = [[] for _ in range(count)]
    for length, step in enumerate(history):
        origins[length, step.active] = step.origin.cpu()
        tokens[length, step.active] = step.token.cpu()
        totals[length, step.active] = step.total.double().cpu()
        ended, origin = step.ended_total.double().cpu().numpy(), step.ended_origin.cpu().numpy()
        for place, rank in zip(*np.isfinite(ended).nonzero(), strict=True):
            total = float(ended[place, rank])
            score = total / penalty(length + 1)
            ends[step.active[place]].append((score, total, length, int(origin[place, rank])))
    chosen = [sorted(each, key=lambda end: -end[0])[:wanted] for each in ends]

    def hypothesis(sentence: int, score: float, total: float, length: int, row: int) -> Hypothesis:
        ids, sums = [eos], [total]
        for place in reversed(range(length)):
            ids.append(int(tokens[place, sentence, row]))
            sums.append(float(totals[place, sentence, row]))
            row = int(origins[place, sentence, row])
        each = tuple(after - before for before, after in pairwise([0.0, *reversed(sums)]))
        return Hypothesis(tuple(reversed(ids)), total, score, each)

    return [[hypothesis(sentence, *end) for end in each] for sentence, each in enumerate(chosen)]
