"""Slot sublayer: the parts of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from nmtdeep.config.section import Bool, Section
from nmtdeep.config.variant import OneOf, Variant

if TYPE_CHECKING:
    from nmtdeep.config.model import Model, Stack


class SelfAttention(Section):
    """Multi-head attention of a stack over itself; causal in the decoder."""

    type: Literal["self_attention"] = "self_attention"


class CrossAttention(Section):
    """Multi-head attention of the decoder over the encoder's output."""

    type: Literal["cross_attention"] = "cross_attention"


class FeedForward(Section):
    """Two linear maps with `model.activation` between them, at each position separately."""

    type: Literal["feed_forward"] = "feed_forward"


class AverageAttention(Section):
    """The mean of all positions so far, AAN (Zhang et al. 2018)."""

    type: Literal["average_attention"] = "average_attention"
    gate: Bool = Field(True, description="input and forget gates between input and average")
    feed_forward: Bool = Field(False, description="a feed-forward map of the average")


class MergedAttention(Section):
    """Cross-attention and an average over the target in one sublayer (Zhang et al. 2019)."""

    type: Literal["merged_attention"] = "merged_attention"
    average: Literal["simplified", "average_attention", "self_attention"] = Field(
        "simplified",
        description="what is merged with cross-attention; simplified: the mean of its own value "
        "projections; average_attention: the gated original; self_attention: no average at all",
    )


class SublayerVariant(Variant):
    """A sublayer of another package.

    Attributes:
        reads_source: whether it attends to the encoder's output; only in the decoder.
        takes_packing: whether it accepts `Context.packing`, packed batches on a GPU.
    """

    slot: ClassVar[str] = "sublayer"
    reads_source: ClassVar[bool] = False
    takes_packing: ClassVar[bool] = False

    def build(self, model: Model, stack: Stack) -> Any:
        """A `nmtdeep.variants.Sublayer` of a stack."""
        raise NotImplementedError


EncoderSublayer = OneOf[SelfAttention | FeedForward | SublayerVariant]
DecoderSublayer = OneOf[
    SelfAttention
    | CrossAttention
    | FeedForward
    | AverageAttention
    | MergedAttention
    | SublayerVariant
]
