"""The slots of recipe section `model`: one class a variant, with its own fields only."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from nmtdeep.config.section import ConflictError, Count, OneOf, Positive, Probability, Section

# Residual wrapper


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


Residual = OneOf[PreNorm | PostNorm | NormalizedResidual | Admin | DeepNorm | ReZero | NoNorm]

# Layer combination


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
    learnable: bool = Field(True, description="false: the weights stay as they start")
    softmax: bool = Field(False, description="rows are normalized by a softmax")
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


Combination = OneOf[PlainStack | Dense | DynamicLinear | SparseBlocks]

# Sublayer


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
    gate: bool = Field(True, description="input and forget gates between input and average")
    feed_forward: bool = Field(False, description="a feed-forward map of the average")


class MergedAttention(Section):
    """Cross-attention and an average over the target in one sublayer (Zhang et al. 2019)."""

    type: Literal["merged_attention"] = "merged_attention"
    average: Literal["simplified", "average_attention", "self_attention"] = Field(
        "simplified",
        description="what is merged with cross-attention; simplified: the mean of its own value "
        "projections; average_attention: the gated original; self_attention: no average at all",
    )


DecoderSublayer = OneOf[
    SelfAttention | CrossAttention | FeedForward | AverageAttention | MergedAttention
]

# Bridge


class TopLayer(Section):
    """Every decoder layer attends to the encoder's top output."""

    type: Literal["top_layer"] = "top_layer"


class Transparent(Section):
    """Each decoder layer reads its own learned mean of encoder layers (Bapna et al. 2018)."""

    type: Literal["transparent"] = "transparent"
    dropout: Probability = Field(0.0, description="on the weights of the means")


Bridge = OneOf[TopLayer | Transparent]

# Positions


class Sinusoidal(Section):
    """Sinusoids added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    type: Literal["sinusoidal"] = "sinusoidal"
    first: Annotated[int, Field(ge=0, le=1000, strict=True)] = Field(
        0, description="position of a sentence's first token; of models that fairseq trained, 2"
    )
    rates: Literal["tensor2tensor", "paper"] = Field(
        "tensor2tensor",
        description="rate of wave i at width d; tensor2tensor: 10000^(-i/(d/2-1)), as fairseq's; "
        "paper: 10000^(-2i/d), as Vaswani et al. 2017 print it and Marian computes it",
    )


class Relative(Section):
    """Relative positions in every self-attention (Shaw et al. 2018), learned for each layer."""

    type: Literal["relative"] = "relative"
    clip: Count = Field(8, description="distances beyond this one count as it")
    values: bool = Field(False, description="also for values, not for keys alone")
    sinusoids: bool = Field(True, description="sinusoids are added to the embeddings as well")


Positions = OneOf[Sinusoidal | Relative]

# Initializer


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


Initializer = OneOf[Glorot | Lipschitz | DepthScaled | AdminProfile | DeepNormBeta | TFixup]
