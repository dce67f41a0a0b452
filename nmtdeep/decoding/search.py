"""Beam search, independent of models and vocabularies.

`step(tokens, state)` returns the log-probabilities of the next tokens; a test drives it with a
table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmtdeep.decoding.blocks import BlockTopK

# In a prefix: any token is allowed here.
FREE = -1
Array = NDArray[Any]
Penalty = Callable[[int], float]


class SearchState(Protocol):
    """The memory of a step, rows grouped by sentence."""

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep hypotheses `rows`; `sentences` are those that stay, None if all do."""


# One decoding step: log-probabilities `(rows, types)` after the newest tokens `(rows,)`, rows
# grouped by sentence. The search writes into them.
Scores = Callable[[Tensor, SearchState], Tensor]


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


def length_penalty(form: str, alpha: float) -> Penalty:
    """The divisor of a hypothesis of `len` tokens, end of sentence included.

    gnmt: ((5 + len) / 6)^alpha (Wu et al. 2016, Eq. 14 without coverage); length: len^alpha
    (fairseq, CTranslate2); none: 1.
    """
    formulas: dict[str, Penalty] = {
        "gnmt": lambda length: ((5 + length) / 6) ** alpha,
        "length": lambda length: length**alpha,
        "none": lambda length: 1.0,
    }
    return formulas[form]


class Candidates(NamedTuple):
    """The best continuations after one step of a search, best first, as the host read them.

    Attributes:
        sentences: `(rows,)` numbers of the sentences in the batch.
        totals: `(rows, candidates)` log-probabilities of the continued hypotheses.
        origins: the hypothesis that each continues.
        tokens: the token that continues it.
    """

    sentences: Array
    totals: Array
    origins: Array
    tokens: Array


@dataclass(frozen=True)
class Constraints:
    """The tokens that each sentence of a batch may have.

    Attributes:
        max_lengths: `(sentences,)` tokens at most, end of sentence included.
        eos: id that starts and ends a sentence.
        forbidden: ids that are never produced; None: all may be.
        prefix: `(sentences, longest)` first tokens, then FREE; shorter than `max_lengths`.
    """

    max_lengths: Tensor
    eos: int
    forbidden: Tensor | None = None
    prefix: Tensor | None = None

    def apply(self, scores: Tensor, length: int, *, may_be_last: bool) -> None:
        """Write -inf into `(sentences, hypotheses, types)` where a token is not allowed.

        Args:
            length: number of tokens before this one.
            may_be_last: whether a sentence must end here, as the host knows.
        """
        if self.forbidden is not None:
            scores.index_fill_(2, self.forbidden, -math.inf)
        left = self.max_lengths - length if may_be_last else None
        if not length:
            # The end is allowed as the first token only where it is also the last.
            ends = scores[:, :, self.eos]
            if left is None:
                ends.fill_(-math.inf)
            else:
                ends.masked_fill_((left > 1)[:, None], -math.inf)
        if left is not None:
            others = torch.arange(scores.shape[2], device=scores.device) != self.eos
            scores.masked_fill_((left <= 1)[:, None, None] & others, -math.inf)
        if self.prefix is not None and length < self.prefix.shape[1]:
            forced = self.prefix[:, length, None]
            others = torch.arange(scores.shape[2], device=scores.device) != forced
            scores.masked_fill_((others & (forced != FREE))[:, None], -math.inf)

    def select(self, sentences: Tensor) -> Constraints:
        """Those of the `sentences` that stay."""
        prefix = None if self.prefix is None else self.prefix[sentences]
        return replace(self, max_lengths=self.max_lengths[sentences], prefix=prefix)


@dataclass(frozen=True)
class BeamSettings:
    """How a beam search goes and ends.

    Attributes:
        penalty: divisor of a hypothesis by its number of tokens; must not decrease.
        wanted: number of hypotheses to return; 0: `size`.
        stop: "full", or "bound" for transformers' rule; see `_Finished.after`.
        spare: share of the batch up to which sentences that are done stay; changes no result.
        behind: steps that the device is ahead of what the host has read; changes no result.
    """

    size: int
    penalty: Penalty = lambda length: 1.0
    wanted: int = 0
    stop: str = "full"
    spare: float = 0.0
    behind: int = 0


@torch.inference_mode()
def beam(
    step: Scores,
    state: SearchState,
    constraints: Constraints,
    settings: BeamSettings,
    kernels: Any = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first.

    fairseq's rules: of the best 2 * size continuations, those that end a sentence count if they
    rank among the first `size`; the best `size` others continue; a sentence is done when it has
    `size` finished hypotheses or reaches its length limit, where the end is forced. The first token
    may not be the end. Ties go to the lower index. A sentence is done earlier if no unfinished one
    can still rank among the best `wanted`, by a bound on its score: its sum so far, divided by the
    penalty of the greatest length.

    The host reads from the device only the best continuations, once per step.

    Args:
        step: next log-probabilities, or logits for `kernels`; called with `eos` first, one row for
            each sentence, and from then on with `size` rows for each.
        state: reordered through its `select`.
        kernels: operators of `nmtdeep.model.kernels.gpu_candidates`; None: those of torch.
    """
    size, eos, device = settings.size, constraints.eos, constraints.max_lengths.device
    ends = _Finished(constraints.max_lengths.tolist(), settings, eos)
    held = np.arange(len(ends.limits))
    totals = torch.zeros(len(held), 1, device=device)
    tokens = torch.full((len(held),), eos, device=device)
    history: list[Candidates] = []
    unread: list[tuple[Array, Callable[[], Array]]] = []
    blocks: BlockTopK | None = None
    length = 0
    while len(held):
        scores = step(tokens, state)
        if kernels is not None:
            totals = kernels.normalized(scores, totals)
        types = scores.shape[1]
        may_be_last = ends.forced(held, length + 1)
        constraints.apply(scores.view(len(held), -1, types), length, may_be_last=may_be_last)
        length += 1
        if kernels is not None:
            found, totals, rows, tokens = kernels.candidates(scores, totals, size, eos)
        else:
            blocks = blocks or BlockTopK(size, types, eos, device)
            found, totals, rows, tokens = blocks.continued(scores, totals)
        unread.append((held, _sent(found)))
        while len(unread) > (settings.behind if (ends.limits[held] > length).any() else 0):
            sentences, arrived = unread.pop(0)
            read, codes = arrived()
            history.append(Candidates(sentences, read, *np.divmod(codes.astype(np.int64), types)))
            ends.after(history[-1], len(history))
        stay = _staying(ends.last[held] > 0, settings.spare)
        kept = None
        if stay is not None:
            held = held[stay]
            kept = torch.from_numpy(stay).to(device, non_blocking=True)
            rows, tokens = (x.view(len(totals), -1)[kept].flatten() for x in (rows, tokens))
            totals, constraints = totals[kept], constraints.select(kept)
        if len(held) and (size > 1 or kept is not None):
            state.select(rows, kept)
    return _read_out(history, ends.last, settings, eos)


def _sent(found: Tensor) -> Callable[[], Array]:
    """Start a copy to the host; what waits for it and returns it."""
    copy = found.to("cpu", non_blocking=True)  # a GPU's into pinned memory
    if found.device.type != "cuda":
        return copy.numpy
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()

    def arrived() -> Array:
        event.synchronize()
        return copy.numpy()

    return arrived


class _Finished:
    """Which sentences are done, computed by the host from what it reads."""

    def __init__(self, limits: Sequence[int], settings: BeamSettings, eos: int) -> None:
        self.settings, self.eos = settings, eos
        self.limits = np.array(limits)
        self.reach = np.array([settings.penalty(limit) for limit in limits])
        self.finished = np.zeros(len(limits), np.int64)
        # The best of finished hypotheses, best last.
        self.scores = np.full((len(limits), settings.size), -math.inf)
        # The step after which each was done, counted from 1; 0 before.
        self.last = np.zeros(len(limits), np.int64)

    def forced(self, sentences: Array, step: int) -> bool:
        """Whether one of `sentences` must end in this step."""
        return bool(((self.limits[sentences] <= step) & (self.last[sentences] == 0)).any())

    def after(self, found: Candidates, step: int) -> None:
        """Note which sentences of this step are done.

        With `stop="bound"`, one with `size` finished hypotheses goes on until the best unfinished
        sum, divided by the penalty of the length so far, is no better than the worst of the best
        `size`: transformers' rule for `early_stopping=False`.
        """
        sentences, size, penalty = found.sentences, self.settings.size, self.settings.penalty(step)
        is_end = found.tokens == self.eos
        ended = np.where(is_end, found.totals, -math.inf)[:, :size]
        going = np.where(is_end, -math.inf, found.totals).max(axis=1)
        self.finished[sentences] += np.isfinite(ended).sum(axis=1)
        scores = np.hstack((ended / penalty, self.scores[sentences]))
        scores = np.sort(scores, axis=1)[:, -size:]
        self.scores[sentences] = scores
        full = self.finished[sentences] >= size
        if self.settings.stop == "bound":
            full &= going / penalty <= scores[:, 0]
        hopeless = going / self.reach[sentences] <= scores[:, -(self.settings.wanted or size)]
        done = full | hopeless | (self.limits[sentences] <= step)
        self.last[sentences[done & (self.last[sentences] == 0)]] = step


def _staying(done: Array, spare: float) -> Array | None:
    """Places of the sentences that stay in the batch; None if it stays as it is.

    The last ones move to the places of those that leave.
    """
    if not done.all() and np.count_nonzero(done) <= spare * len(done):
        return None
    going = np.flatnonzero(~done).tolist()
    return np.array(
        [going.pop() if done[place] else place for place in range(len(going))], np.int64
    )


def _read_out(
    history: Sequence[Candidates], last: Array, settings: BeamSettings, eos: int
) -> list[list[Hypothesis]]:
    """The best `wanted` hypotheses of each sentence, each followed back to its beginning."""
    size = settings.size
    origins = np.zeros((len(history), len(last), size), dtype=np.int64)
    tokens, totals = origins.copy(), np.zeros(origins.shape)
    ends: list[list[tuple[float, float, int, int]]] = [[] for _ in last]
    for length, step in enumerate(history):
        is_end = step.tokens == eos
        order = is_end.argsort(axis=1, kind="stable")[:, :size]
        origins[length, step.sentences] = np.take_along_axis(step.origins, order, axis=1)
        tokens[length, step.sentences] = np.take_along_axis(step.tokens, order, axis=1)
        totals[length, step.sentences] = np.take_along_axis(step.totals, order, axis=1)
        counts = is_end & np.isfinite(step.totals) & (last[step.sentences] > length)[:, None]
        for place, rank in zip(*counts[:, :size].nonzero(), strict=True):
            total = float(step.totals[place, rank])
            score = total / settings.penalty(length + 1)
            end = (score, total, length, int(step.origins[place, rank]))
            ends[step.sentences[place]].append(end)
    chosen = [sorted(each, key=lambda end: -end[0])[: settings.wanted or size] for each in ends]
    flat = [(sentence, *end) for sentence, each in enumerate(chosen) for end in each]
    owners, lengths, rows = np.array([end[:1] + end[3:] for end in flat], np.int64).reshape(-1, 3).T
    # Behind a hypothesis, its end and its total.
    ids = np.full((len(flat), len(history) + 1), eos)
    sums = np.full(ids.T.shape, [end[2] for end in flat]).T
    for place in reversed(range(len(history))):
        (going,) = (lengths > place).nonzero()
        at = place, owners[going], rows[going]
        ids[going, place], sums[going, place], rows[going] = tokens[at], totals[at], origins[at]
    parts = zip(flat, ids.tolist(), np.diff(sums, prepend=0.0).tolist(), strict=True)
    results: list[list[Hypothesis]] = [[] for _ in last]
    for (sentence, score, total, length, _), own, each in parts:
        whole = slice(length + 1)
        found = Hypothesis(tuple(own[whole]), total, score, tuple(each[whole]))
        results[sentence].append(found)
    return results
