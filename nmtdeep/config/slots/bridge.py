"""Slot bridge: which encoder output each decoder layer attends to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from nmtdeep.config.section import Probability, Section
from nmtdeep.config.variant import OneOf, Variant

if TYPE_CHECKING:
    from nmtdeep.config.model import Model


class TopLayer(Section):
    """Every decoder layer attends to the encoder's top output."""

    type: Literal["top_layer"] = "top_layer"


class Projection(Section):
    """One linear map takes the encoder's top output to the decoder's width, for all its layers."""

    type: Literal["projection"] = "projection"


class Transparent(Section):
    """Each decoder layer reads its own learned mean of encoder layers (Bapna et al. 2018)."""

    type: Literal["transparent"] = "transparent"
    dropout: Probability = Field(0.0, description="on the weights of the means")


class BridgeVariant(Variant):
    """A bridge of another package."""

    slot: ClassVar[str] = "bridge"

    def build(self, model: Model) -> Any:
        """The `nmtdeep.variants.Bridge` between the stacks of a model."""
        raise NotImplementedError


Bridge = OneOf[TopLayer | Projection | Transparent | BridgeVariant]
