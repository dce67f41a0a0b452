"""Attention residuals: each sublayer reads the mean of outputs below it that its query weighs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.model.layers.combination import Combination, Sources
from nmtdeep.model.layers.linear import linear_of_rms_norm


class SourceHistory(NamedTuple):
    """What the next sublayer attends to.

    Attributes:
        values: b_0 (the embedding), the sums of full blocks, and that of the newest block so far.
        scores: of each value: one for each query, `(...)`.
        sublayers: number of sublayers done.
    """

    values: tuple[Tensor, ...]
    scores: tuple[tuple[Tensor, ...], ...]
    sublayers: int


class AttentionResiduals(Combination):
    """h_l = sum_i alpha_il v_i, alpha_l = softmax_i(w_l RMSNorm(v_i)) (Kimi Team 2026, Eq. 2 to 4).

    v_0 is the embedding and v_i the output of sublayer i < l without its residual; each sublayer,
    and whatever reads the top, has one query w_l `(d,)`, which starts at 0: the plain mean. In
    blocks of S sublayers (section 3.2) the values are the sums of blocks, the newest one
    b_n^{i-1} as far as it goes. The norm's gain is part of the query.

    Args:
        block: S; 1: every output is a value.
    """

    connects: Literal["layers", "sublayers"] = "sublayers"

    def __init__(self, sublayers: int, width: int, *, block: int, epsilon: float) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(sublayers + 1, width))
        self.block = block
        self.epsilon = epsilon

    def init_constants(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        yield self.query, torch.zeros(self.query.shape)

    def start(self, x: Tensor) -> SourceHistory:
        return SourceHistory((x,), (self._scores(x),), 0)

    def add(self, history: SourceHistory, output: Tensor) -> SourceHistory:
        """A new block, or more of the newest."""
        values, scores, sublayers = history
        if sublayers % self.block:
            output = values[-1] + output
            values, scores = values[:-1], scores[:-1]
        elif self.block > 1:
            output = output.to(values[0].dtype)  # a sum, as residuals are
        return SourceHistory((*values, output), (*scores, self._scores(output)), sublayers + 1)

    def read(self, history: SourceHistory) -> Tensor:
        scores = torch.stack([each[history.sublayers] for each in history.scores])
        shares = scores.softmax(dim=0)[..., None]
        total = shares[0] * history.values[0]
        for share, value in zip(shares[1:], history.values[1:], strict=True):
            total = total + share * value
        return total

    def inherit(self, old: Combination, sources: Sources) -> None:
        """The queries of a layer's sublayers are copied with the layer, that of the top stays."""
        assert isinstance(old, AttentionResiduals)
        each = len(self.query) // len(sources)
        for layer, source in enumerate(sources):
            if source is not None:
                theirs = old.query[source * each : (source + 1) * each]
                self.query[layer * each : (layer + 1) * each] = theirs
        self.query[-1] = old.query[-1]

    def _scores(self, value: Tensor) -> tuple[Tensor, ...]:
        """w_l RMSNorm(value) for all l at once."""
        with torch.autocast(value.device.type, enabled=False):
            value = value.to(self.query.dtype)
            return linear_of_rms_norm(value, self.query, epsilon=self.epsilon).unbind(dim=-1)
