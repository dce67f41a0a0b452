"""The simpler simple recurrent unit: a decoder's self-attention by one state (Kim et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from nmtdeep.model.layers.cache import RowState
from nmtdeep.model.layers.initial_values import InitMatrix, matrix
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.sublayer import Context, State, Sublayer


def recurrence(keep: Tensor, new: Tensor) -> Tensor:
    """c_t = keep_t c_(t-1) + new_t with c_0 = 0, of `(sentences, positions, width)` each.

    In as many passes over all positions as the binary digits of their number: after pass i, every
    position has the sum of the last 2^i terms, and the product of as many factors.
    """
    step, positions = 1, new.shape[1]
    while step < positions:
        earlier = F.pad(new, (0, 0, step, 0))[:, :positions]
        new = new + keep * earlier
        keep = keep * F.pad(keep, (0, 0, step, 0))[:, :positions]
        step *= 2
    return new


class Ssru(Sublayer):
    """max(0, c_t) with c_t = f_t c_(t-1) + (1 - f_t) W x_t and f_t = sigmoid(W_f x_t + b_f).

    The unit of Kim et al. 2019, "From Research to Production and Back", as Marian's class `SSRU`
    computes it: an SRU (Lei et al. 2018) without its reset gate, and with max(0, .) in place of
    tanh. A step of decoding reads c_(t-1) alone, however long the sentence is.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.candidate = Linear(width, width, bias=False)
        self.gate = Linear(width, width)

    def init_matrices(self) -> Iterator[InitMatrix]:
        yield matrix(self.candidate, "value")
        yield matrix(self.gate, "gate")

    def start(self, context: Context) -> RowState:
        return RowState()

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """All positions of `x`; with a state, its newest one. c is in fp32 or better."""
        exact = torch.promote_types(x.dtype, torch.float32)
        keep, candidate = self.gate(x).to(exact).sigmoid(), self.candidate(x).to(exact)
        new = (1 - keep) * candidate
        if isinstance(state, RowState):
            cell = new if state.value is None else keep * state.value + new
            state.value = cell
        elif context.packing is not None:
            pad = context.packing.pad
            cell = context.packing.pack(recurrence(pad(keep), pad(new)))
        else:
            cell = recurrence(keep, new)
        return cell.relu().to(x.dtype)
