"""The base of sublayers, and the context that they read in addition to their input."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from nmtdeep.model.layers.cache import CacheIndex, State
from nmtdeep.model.layers.initial_values import InitMatrix
from nmtdeep.packing import Packing

__all__ = ["Context", "State", "Sublayer"]


@dataclass(frozen=True)
class Context:
    """Masks and memory of one forward pass; in every mask `True` means "attend".

    Attributes:
        mask: `(sentences, 1, 1, keys)` of the stack's own padding, or None where nothing is padded
            or causality hides the padding, which is at the end.
        memory: `(sentences, source, width)` encoder output; None in the encoder.
        memory_mask: `(sentences, 1, 1, source)`.
        packing: the sentences of the stack's own positions, if these are packed,
            `(1, tokens, width)`; packed sentences need no mask.
        memory_packing: the sentences of the memory, if it is packed.
        index: for `start` only: the entries that each hypothesis will descend from.
    """

    mask: Tensor | None = None
    memory: Tensor | None = None
    memory_mask: Tensor | None = None
    packing: Packing | None = None
    memory_packing: Packing | None = None
    index: CacheIndex | None = None


class Sublayer(nn.Module):
    """Base of every sublayer: `forward(x, context, state=None) -> Tensor`, shapes kept.

    `x` is `(sentences, positions, width)`. With a state, `x` is `(sentences, hypotheses, width)`:
    the newest position of each hypothesis, and the state is updated.
    """

    def init_matrices(self) -> Iterable[InitMatrix]:
        """The matrices that initializers draw; biases start at zero and are not listed."""
        raise NotImplementedError

    def start(self, context: Context) -> State | None:
        """State before the first step, or None if the sublayer needs none."""
        return None

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        raise NotImplementedError
