"""Slot positions: the order of the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from nmtdeep.config.section import Bool, Count, Positive, Section
from nmtdeep.config.variant import OneOf, Variant

if TYPE_CHECKING:
    from nmtdeep.config.model import Model, Stack

First = Annotated[
    int,
    Field(
        ge=0,
        le=1000,
        strict=True,
        description="position of a sentence's first token; of models that fairseq trained, 2",
    ),
]


class Sinusoidal(Section):
    """Sinusoids added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    type: Literal["sinusoidal"] = "sinusoidal"
    first: First = 0
    rates: Literal["tensor2tensor", "paper"] = Field(
        "tensor2tensor",
        description="rate of wave i at width d; tensor2tensor: 10000^(-i/(d/2-1)), as fairseq's; "
        "paper: 10000^(-2i/d), as Vaswani et al. 2017 print it and Marian computes it",
    )


class Relative(Section):
    """Relative positions in every self-attention (Shaw et al. 2018), learned for each layer."""

    type: Literal["relative"] = "relative"
    clip: Count = Field(8, description="distances beyond this one count as it")
    values: Bool = Field(False, description="also for values, not for keys alone")
    sinusoids: Bool = Field(True, description="sinusoids are added to the embeddings as well")
    first: First = 0


class Rotary(Section):
    """Queries and keys of every self-attention rotated by their positions (Su et al. 2021)."""

    type: Literal["rotary"] = "rotary"
    base: Positive = Field(10_000.0, description="of the angles base^(-2i/d_h)")


class PositionsVariant(Variant):
    """Positions of another package, added to the embeddings, in self-attention, or both.

    Attributes:
        takes_packing: whether the module takes `(x, start, packing)` too, packed batches.
    """

    slot: ClassVar[str] = "positions"
    takes_packing: ClassVar[bool] = False

    def build(self, model: Model, stack: Stack) -> Any:
        """The module that adds positions to embeddings, called as `positions(x, start)`."""
        raise NotImplementedError

    def in_attention(self, model: Model, stack: Stack) -> Any:
        """The relative positions of a self-attention of `stack`; None for none."""
        return None


Positions = OneOf[Sinusoidal | Relative | Rotary | PositionsVariant]
