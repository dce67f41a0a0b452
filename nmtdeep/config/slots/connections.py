"""How layers are connected: slots residual wrapper, layer combination and bridge."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from nmtdeep.config.section import Bool, ConflictError, Count, Multiple, Probability, Section
from nmtdeep.config.variant import OneOf, Variant

if TYPE_CHECKING:
    from nmtdeep.config.model import Model, Stack


class PreNorm(Section):
    """x + dropout(sublayer(norm(x))), and a norm on top of the stack."""

    type: Literal["pre_norm"] = "pre_norm"


class PostNorm(Section):
    """norm(x + dropout(sublayer(x))), the original Transformer's order."""

    type: Literal["post_norm"] = "post_norm"


class NormalizedResidual(Section):
    """n + dropout(sublayer(n)) with n = norm(x), and a norm on top (release of Xu et al. 2020)."""

    type: Literal["normalized"] = "normalized"


class Admin(Section):
    """norm(omega x + dropout(sublayer(x))), omega a learned vector (Liu et al. 2020)."""

    type: Literal["admin"] = "admin"


class DeepNorm(Section):
    """norm(alpha x + dropout(sublayer(x))), alpha from both depths (Wang et al. 2022)."""

    type: Literal["deep_norm"] = "deep_norm"


class ReZero(Section):
    """x + alpha dropout(sublayer(x)), alpha learned from 0, no norm (Bachlechner et al. 2021)."""

    type: Literal["rezero"] = "rezero"


class NoNorm(Section):
    """x + dropout(sublayer(x)), no norm anywhere: the layers of T-Fixup (Huang et al. 2020)."""

    type: Literal["no_norm"] = "no_norm"


class BottomToTop(Section):
    """post_norm, and the layer's input is added before its last norm (Takase et al. 2022)."""

    type: Literal["b2t"] = "b2t"


class RungeKutta(Section):
    """y + sum_i gamma_i F_i, pre_norm layers F as in an ODE's solver (Li et al. 2022)."""

    type: Literal["runge_kutta"] = "runge_kutta"
    order: Literal[2, 4] = Field(2, description="how often each layer is computed")
    weights: Literal["fixed", "learned", "gate"] = Field(
        "fixed",
        description="gamma; fixed: the method's own; learned: from 1; gate, of order 2: g and 1 - "
        "g, computed at each position",
    )
    function: Literal["change", "output"] = Field(
        "change",
        description="F; change: the layer's output minus its input; output: the output, as in the "
        "authors' release",
    )

    @model_validator(mode="after")
    def _check(self) -> RungeKutta:
        if self.weights == "gate" and self.order != 2:
            what = f"a gate weighs two values, and order: {self.order} has {self.order}"
            raise ConflictError(what, "weights", "order", hint="set weights: fixed or learned")
        return self


class CompleteP(Section):
    """x + m^-alpha dropout(sublayer(norm(x))), m = depth / base depth (Dey et al. 2025).

    Rates and epsilon of Adam follow m too, so that those of the base depth suit every depth.
    """

    type: Literal["complete_p"] = "complete_p"
    base_depth: Count = Field(6, description="layers of a stack that m is 1 for")
    alpha: Annotated[float, Field(ge=0.5, le=1, strict=True)] = Field(
        1.0, description="exponent of m; 1: CompleteP, 0.5: its predecessor"
    )


class ResidualVariant(Variant):
    """A residual wrapper of another package.

    Attributes:
        norms: the place of its norms: before the sublayers (a norm on top of the stack follows),
            after the sums, or nowhere.
    """

    slot: ClassVar[str] = "residual wrapper"
    norms: ClassVar[Literal["before", "after", "nowhere"]] = "before"

    def build(self, sublayer: Any, model: Model, stack: Stack) -> Any:
        """The `nmtdeep.variants.Residual` around `sublayer`."""
        raise NotImplementedError


Residual = OneOf[
    PreNorm
    | PostNorm
    | NormalizedResidual
    | Admin
    | DeepNorm
    | ReZero
    | NoNorm
    | CompleteP
    | BottomToTop
    | RungeKutta
    | ResidualVariant
]


class PlainStack(Section):
    """Layer l+1 reads the output of layer l."""

    type: Literal["residual"] = "residual"


class LinearCombination(Section):
    """The common settings of the linear combinations."""

    norm: Literal["layers", "all", "none"] = Field(
        "layers",
        description="norms of the combination; layers: as released, none for the embedding output "
        "(before the sum) or the first layer's input (after it); all: there too, as Wang et al. "
        "2019, Eq. 8 and 9 are printed; none: no norm",
    )


class Dense(LinearCombination):
    """Layer l+1 reads a fixed sum of all outputs below it: the dense residual network."""

    type: Literal["dense"] = "dense"
    weight: Literal["one", "average"] = Field(
        "average", description="each output's weight: 1, or 1/n of n outputs"
    )


class Learned(LinearCombination):
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
    start: Literal["all_streams", "one_stream"] = Field(
        "all_streams",
        description="which streams take a sublayer's output at first: all by 1 (pre-norm's "
        "residual), or one by 1.46 and the others by 0.54 (FFTYYY/mhc-lite)",
    )


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

    def layer(self, sublayers: Any, model: Model, stack: Stack) -> Any:
        """A `nmtdeep.variants.Layer` of the wrapped sublayers; None: the usual one."""


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
