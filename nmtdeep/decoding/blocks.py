"""The best continuations of hypotheses over a large vocabulary."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64


class Continued(NamedTuple):
    """The hypotheses after a step."""

    found: Tensor  # (2, sentences, candidates), totals and codes of the best, for the host
    totals: Tensor  # (sentences, size), of the first ones that do not end a sentence
    rows: Tensor  # (sentences * size,), the hypotheses that these continue
    tokens: Tensor  # (sentences * size,), the tokens that continue them


class BlockTopK:
    """The best continuations of each sentence, found by blocks of columns.

    They are in the blocks with the greatest maxima: a scan for maxima and a choice among few are
    much faster than `topk` on rows of thousands. A continuation's code is its hypothesis times the
    number of types, plus its token. The last block of a hypothesis may be incomplete.
    """

    def __init__(self, size: int, types: int, eos: int, device: torch.device) -> None:
        self.count = 2 * size if size > 1 else 1
        self.size, self.types, self.eos = size, types, eos
        self.each = -(-types // BLOCK)
        column = torch.arange(self.each * BLOCK, device=device).view(1, -1, BLOCK)
        first = torch.arange(size, device=device)[:, None, None] * types
        self.codes = (first + column.clamp(max=types - 1)).flatten(0, 1)
        beyond = (column >= types).expand(size, -1, -1).flatten(0, 1)
        self.beyond = beyond if types % BLOCK else None

    def continued(self, log_probs: Tensor, totals: Tensor) -> Continued:
        """The best continuations, and the first `size` that go on; arguments of `best`."""
        best, code = self.best(log_probs, totals.to(log_probs.dtype))
        # float64 holds every code, so that all is read at once.
        found = torch.stack([best.double(), code.double()])
        if self.size > 1:
            going = best.masked_fill(code % self.types == self.eos, -math.inf)
            best, order = going.sort(dim=1, descending=True, stable=True)
            best, code = best[:, : self.size], code.gather(1, order[:, : self.size])
        first = torch.arange(len(totals), device=totals.device)[:, None]
        rows = torch.add(code // self.types, first, alpha=totals.shape[1])
        return Continued(found, best, rows.flatten(), (code % self.types).flatten())

    def best(self, log_probs: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
        """Totals and codes `(sentences, candidates)`, best first; ties go to the lower code.

        If there are fewer, the rest are ends with a total of -inf.

        Args:
            log_probs: `(sentences * hypotheses, types)` of the next tokens.
            totals: `(sentences, hypotheses)` log-probabilities so far.
        """
        if self.count == 1 and log_probs.device.type != "cpu":  # which scans fast without blocks
            best, code = log_probs.max(dim=1, keepdim=True)
            return best + totals, code
        sentences, hypotheses = totals.shape
        if hypotheses * self.each <= self.count:
            sums = (log_probs.view(*totals.shape, -1) + totals[:, :, None]).flatten(1)
            best, code = _greatest(sums, min(self.count, sums.shape[1]))
            missing = (0, self.count - code.shape[1])
            return F.pad(best, missing, value=-math.inf), F.pad(code, missing, value=self.eos)
        maxima = self._maxima(log_probs).view(*totals.shape, -1) + totals[:, :, None]
        chosen = _greatest(maxima.flatten(1), self.count)[1].sort(dim=1).values
        code = self.codes[chosen]
        sums = log_probs.view(sentences, -1).gather(1, code.flatten(1)).view(code.shape)
        sums = sums + totals.gather(1, chosen // self.each)[:, :, None]
        if self.beyond is not None:
            sums.masked_fill_(self.beyond[chosen], -math.inf)
        best, place = _greatest(sums.flatten(1), self.count)
        return best, code.flatten(1).gather(1, place)

    def _maxima(self, log_probs: Tensor) -> Tensor:
        """The greatest of each block, `(rows, blocks)`."""
        whole = log_probs.shape[1] // BLOCK * BLOCK
        maxima = log_probs[:, :whole].view(len(log_probs), -1, BLOCK).amax(dim=2)
        if self.beyond is None:
            return maxima
        return torch.cat((maxima, log_probs[:, whole:].amax(dim=1, keepdim=True)), dim=1)


def _greatest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` greatest elements of each row and their columns; ties go to the first ones."""
    if count == 1:
        return x.max(dim=1, keepdim=True)
    if x.device.type == "cpu":  # where a sort is much slower than `topk`, which chooses any of ties
        best, index = x.topk(count, dim=1)
        least = best[:, -1:]
        crowded = ((x >= least).sum(dim=1, keepdim=True) > count) & least.isfinite()
        if not crowded.any():
            index = index.sort(dim=1).values
            best, order = x.gather(1, index).sort(dim=1, descending=True, stable=True)
            return best, index.gather(1, order)
    best, index = x.sort(dim=1, descending=True, stable=True)
    return best[:, :count], index[:, :count]
