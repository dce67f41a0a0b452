"""What a sublayer may look at besides its input, and what it remembers between steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from nmtdeep.model.layers.parameters import Matrix
from nmtdeep.model.layers.slots import Slots


@dataclass(frozen=True)
class Context:
    """Masks and memory of one forward pass; in every mask `True` means "attend".

    Attributes:
        mask: `(sentences, 1, 1, keys)` of the stack's own padding, or None where nothing is padded
            or causality hides the padding (it stands at the end).
        memory: `(sentences, source, width)` encoder output; None in the encoder.
        memory_mask: `(sentences, 1, 1, source)`.
        slots: for `start` only: which positions so far each hypothesis will have grown from.
    """

    mask: Tensor | None = None
    memory: Tensor | None = None
    memory_mask: Tensor | None = None
    slots: Slots | None = None


class State(Protocol):
    """A sublayer's own tensors in incremental decoding."""

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep hypotheses `rows`; `sentences` are those that stay, None if all do.

        Both count from 0 in the order before; a hypothesis goes on from one of its own sentence.
        """


class Sublayer(nn.Module):
    """Base of every sublayer: `forward(x, context, state=None) -> Tensor`, shapes kept.

    `x` is `(sentences, positions, width)`. With a state, `x` is `(sentences, hypotheses, width)`:
    the newest position of each hypothesis; the state is brought up to date.
    """

    def matrices(self) -> Iterable[Matrix]:
        """What initializers draw; biases are zero and need no mention."""
        raise NotImplementedError

    def start(self, context: Context) -> State | None:
        """State before the first step, or None if the sublayer needs none."""
        return None

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Apply the sublayer."""
        raise NotImplementedError
