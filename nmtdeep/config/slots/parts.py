"""What layers are made of: slots sublayer, positions and initializer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from nmtdeep.config.section import Bool, Count, Positive, Section, later
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


class Ssru(Section):
    """A recurrence with one gate in place of self-attention, SSRU (Kim et al. 2019)."""

    type: Literal["ssru"] = "ssru"


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
    | Ssru
    | MergedAttention
    | SublayerVariant
]


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


CrossAttentionFans = Annotated[
    Literal["joint", "separate"],
    Field(
        description="query, key and value of cross-attention; joint: one d x 3d matrix, as those "
        "of self-attention are (fairseq); separate: three d x d (release of Zhang et al. 2019)"
    ),
]


class Glorot(Section):
    """Glorot uniform matrices, N(0, 1/d) embeddings, zero biases: fairseq's and DLCL's start."""

    type: Literal["glorot"] = "glorot"
    gain: Positive = Field(1.0, description="multiplies the bound of every matrix")
    embeddings: Literal["normal", "glorot"] = Field(
        "normal", description="normal: N(0, 1/d); glorot: as a matrix (baseline of Xu et al. 2020)"
    )
    cross_attention: CrossAttentionFans = "joint"
    feed_forward: Literal["glorot", "linear"] = later(
        "glorot",
        "linear: maps and biases of feed-forward sublayers U(-b, b), b = "
        "1/sqrt(fan_in), as torch.nn.Linear starts (releases of R-Drop and B2T)",
    )


class Lipschitz(Section):
    """Matrices U(-1/sqrt(fan_in), 1/sqrt(fan_in)): w/sigma at least 1 (Xu et al. 2020)."""

    type: Literal["lipschitz"] = "lipschitz"
    scale: Positive = Field(1.0, description="multiplies every bound")
    embeddings: Literal["lipschitz", "normal"] = Field(
        "lipschitz",
        description="lipschitz: U(-e, e) with e = sqrt(2 / (vocabulary + width)), as in the paper; "
        "normal: N(0, 1/d), which `scale` does not change",
    )


class DepthScaled(Section):
    """Glorot bounds times alpha l^-exponent in layer l: DS-Init (Zhang et al. 2019, Eq. 15)."""

    type: Literal["depth_scaled"] = "depth_scaled"
    alpha: Positive = Field(1.0, description="alpha of Eq. 15")
    exponent: Positive = Field(
        0.5, description="0.5: as Eq. 15 is printed; 0.25: as released, and as Table 1 shows"
    )
    cross_attention: CrossAttentionFans = "joint"


class AdminProfile(Section):
    """Glorot, and the wrappers' omegas from variances on a training batch (Liu et al. 2020)."""

    type: Literal["admin"] = "admin"


class DeepNormBeta(Section):
    """Values, outputs and feed-forward maps times beta of both depths (Wang et al. 2022)."""

    type: Literal["deep_norm"] = "deep_norm"


class TFixup(Section):
    """Values, outputs, feed-forward maps and embeddings by depth^(-1/4) (Huang et al. 2020)."""

    type: Literal["t_fixup"] = "t_fixup"


class InitializerVariant(Variant):
    """An initializer of another package."""

    slot: ClassVar[str] = "initializer"

    def rules(self, model: Model) -> Any:
        """The `nmtdeep.variants.Rules` for a model, or for one of its stacks."""
        raise NotImplementedError


Initializer = OneOf[
    Glorot | Lipschitz | DepthScaled | AdminProfile | DeepNormBeta | TFixup | InitializerVariant
]
