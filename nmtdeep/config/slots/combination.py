"""Slot layer combination: what each layer reads of the layers below it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from nmtdeep.config.section import Bool, ConflictError, Count, Multiple, Probability, Section
from nmtdeep.config.variant import OneOf, Variant

if TYPE_CHECKING:
    from nmtdeep.config.model import Model, Stack


class PlainStack(Section):
    """Layer l+1 reads the output of layer l."""

    type: Literal["residual"] = "residual"


class Linear(Section):
    """The common settings of the linear combinations."""

    norm: Literal["layers", "all", "none"] = Field(
        "layers",
        description="norms of the combination; layers: as released, none for the embedding output "
        "(before the sum) or the first layer's input (after it); all: there too, as Wang et al. "
        "2019, Eq. 8 and 9 are printed; none: no norm",
    )


class Dense(Linear):
    """Layer l+1 reads a fixed sum of all outputs below it: the dense residual network."""

    type: Literal["dense"] = "dense"
    weight: Literal["one", "average"] = Field(
        "average", description="each output's weight: 1, or 1/n of n outputs"
    )


class Learned(Linear):
    """Shape, initial values and training of a combination's weights."""

    weights: Literal["scalar", "vector", "scalar_n"] = Field(
        "scalar",
        description="a number for each output; or one for each of its features; or `groups` "
        "numbers, feature i taking number i mod groups",
    )
    groups: Count | None = Field(None, description="how many numbers scalar_n has")
    initial: Literal["average", "one"] = Field("average", description="weights at the start")
    learnable: Bool = Field(True, description="false: the weights stay as they start")
    softmax: Bool = Field(False, description="rows are normalized by a softmax")
    window: Count | None = Field(None, description="only this many newest outputs; null: all")
    dropout: Probability = Field(0.0, description="on what is read (history dropout)")

    @model_validator(mode="after")
    def _check(self) -> Learned:
        if (self.weights == "scalar_n") != (self.groups is not None):
            what = f"weights: {self.weights} with groups: {self.groups}"
            hint = "scalar_n, and only scalar_n, needs groups"
            raise ConflictError(what, "weights", "groups", hint=hint)
        return self


class DynamicLinear(Learned):
    """Dynamic linear combination of layers, DLCL (Wang et al. 2019, Eq. 7 to 9)."""

    type: Literal["dlcl"] = "dlcl"


class SparseBlocks(Learned):
    """DLCL over the outputs of blocks, residual inside them (Li et al. 2020, Figure 4)."""

    type: Literal["sparse_blocks"] = "sparse_blocks"
    blocks: Count | tuple[int, ...] = Field(
        6,
        description="layers of a block; or all boundaries, from 0 to the depth, for blocks of "
        "different sizes. 1 is DLCL, more than the depth the plain stack",
    )

    @model_validator(mode="after")
    def _check_blocks(self) -> SparseBlocks:
        if isinstance(self.blocks, tuple):
            ascending = all(low < high for low, high in pairwise(self.blocks))
            if len(self.blocks) < 2 or self.blocks[0] != 0 or not ascending:
                what = f"boundaries {list(self.blocks)} do not rise from 0"
                hint = "list the boundary of each block, such as [0, 6, 12]"
                raise ConflictError(what, "blocks", hint=hint)
        return self

    def boundaries(self, depth: int) -> tuple[int, ...]:
        """Block boundaries of a stack, a smaller block on top; 0 alone if none is full."""
        if isinstance(self.blocks, tuple):
            return self.blocks
        return (*range(0, depth, self.blocks), depth) if self.blocks <= depth else (0,)


class DenseFormer(Section):
    """Depth-weighted averages after layers: DLCL without norms, from the plain stack."""

    type: Literal["denseformer"] = "denseformer"
    dilation: Count = Field(1, description="an average reads every k-th output, from the newest on")
    period: Count = Field(1, description="there is an average after every p-th layer")


class OfSublayers(Section):
    """A combination that replaces the residuals of sublayers."""


class Streams(OfSublayers):
    """The common settings of hyper-connections."""

    streams: Count = Field(4, description="n, how many streams take the residual's place")


class HyperConnections(Streams):
    """n streams, which each sublayer reads, mixes and adds to (Zhu et al. 2024)."""

    type: Literal["hyper_connections"] = "hyper_connections"
    weights: Literal["dynamic", "static"] = Field(
        "dynamic", description="whether they depend on the streams"
    )


class ManifoldHyperConnections(Streams):
    """Hyper-connections whose mixing is doubly stochastic: mHC (Xie et al. 2025)."""

    type: Literal["mhc"] = "mhc"
    iterations: Multiple = Field(20, description="of Sinkhorn-Knopp, t_max")


class AttentionResiduals(OfSublayers):
    """Each sublayer attends to the outputs of those below it (Kimi Team 2026)."""

    type: Literal["attention_residuals"] = "attention_residuals"
    block: Count = Field(
        1,
        description="sublayers of a block, whose sum is attended to (Block AttnRes); "
        "1: each output is",
    )


class CombinationVariant(Variant):
    """A layer combination of another package."""

    slot: ClassVar[str] = "layer combination"

    def build(self, model: Model, stack: Stack) -> Any:
        """The `nmtdeep.variants.Combination` of a stack."""
        raise NotImplementedError


Combination = OneOf[
    PlainStack
    | Dense
    | DynamicLinear
    | SparseBlocks
    | DenseFormer
    | HyperConnections
    | ManifoldHyperConnections
    | AttentionResiduals
    | CombinationVariant
]
