"""Recipe section `model`: the seven slots of a deep Transformer and their variants."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from nmtdeep.config.section import Count, Positive, Probability, Section, tagged


class PreNorm(Section):
    """x + dropout(sublayer(norm(x))), and a norm on top of the stack."""

    type: Literal["pre_norm"] = "pre_norm"


class PostNorm(Section):
    """norm(x + dropout(sublayer(x))), the original Transformer's order."""

    type: Literal["post_norm"] = "post_norm"


Residual = Annotated[
    Annotated[PreNorm | PostNorm, Field(discriminator="type")], BeforeValidator(tagged)
]


class PlainStack(Section):
    """Layer l+1 reads the output of layer l."""

    type: Literal["residual"] = "residual"


Combination = Annotated[PlainStack, BeforeValidator(tagged)]


class SelfAttention(Section):
    """Multi-head attention of a stack over itself; causal in the decoder."""

    type: Literal["self_attention"] = "self_attention"


class CrossAttention(Section):
    """Multi-head attention of the decoder over the encoder's output."""

    type: Literal["cross_attention"] = "cross_attention"


class FeedForward(Section):
    """Two linear maps with ReLU between them, at each position by itself."""

    type: Literal["feed_forward"] = "feed_forward"


DecoderSublayer = Annotated[
    Annotated[SelfAttention | CrossAttention | FeedForward, Field(discriminator="type")],
    BeforeValidator(tagged),
]


class Stack(Section):
    """What encoder and decoder have in common."""

    depth: Count = Field(6, description="number of layers")
    heads: Count = Field(8, description="attention heads; must divide the model width")
    feed_forward: Count = Field(2048, description="width inside the feed-forward sublayer")
    residual: Residual = Field(PreNorm(), description="where the norm stands")
    combination: Combination = Field(PlainStack(), description="what each layer reads")


class Encoder(Stack):
    """A stack of self-attention and feed-forward sublayers."""


class Decoder(Stack):
    """A decoder kind is its list of sublayers."""

    sublayers: tuple[DecoderSublayer, ...] = Field(
        (SelfAttention(), CrossAttention(), FeedForward()),
        min_length=1,
        description="the sublayers of each layer, in order",
    )


class TopLayer(Section):
    """Every decoder layer attends to the encoder's top output."""

    type: Literal["top_layer"] = "top_layer"


class Sinusoidal(Section):
    """Sinusoids added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    type: Literal["sinusoidal"] = "sinusoidal"


class Glorot(Section):
    """Glorot uniform matrices, N(0, 1/d) embeddings, zero biases: fairseq's and DLCL's start."""

    type: Literal["glorot"] = "glorot"
    gain: Positive = Field(1.0, description="multiplies the bound of every matrix")


class Embeddings(Section):
    """Token embeddings, scaled by the square root of the width."""

    sharing: Literal["all", "decoder", "none"] = Field(
        "all",
        description="all: source, target and output share one matrix; decoder: target and output "
        "share; none: three matrices",
    )
    bias: bool = Field(
        False, description="one vector added to every embedding of both sides (Zhang et al. 2019)"
    )


class Dropout(Section):
    """Dropout probabilities, by place."""

    embedding: Probability = Field(0.1, description="after embedding plus position")
    residual: Probability = Field(0.1, description="on each sublayer's output")
    attention: Probability = Field(0.0, description="on attention weights")
    activation: Probability = Field(0.0, description="after the ReLU of the feed-forward sublayer")


class Model(Section):
    """The Transformer: seven slots and their sizes."""

    width: Count = Field(512, description="model width d")
    encoder: Encoder = Encoder()
    decoder: Decoder = Decoder()
    bridge: Annotated[TopLayer, BeforeValidator(tagged)] = Field(
        TopLayer(), description="which encoder output each decoder layer attends to"
    )
    positions: Annotated[Sinusoidal, BeforeValidator(tagged)] = Field(
        Sinusoidal(), description="how a token knows its place"
    )
    embeddings: Embeddings = Embeddings()
    dropout: Dropout = Dropout()
    initialiser: Annotated[Glorot, BeforeValidator(tagged)] = Field(
        Glorot(), description="where training starts"
    )
    norm_epsilon: Positive = Field(1e-5, description="epsilon of every layer norm")

    @model_validator(mode="after")
    def _check(self) -> Model:
        for name, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            if self.width % stack.heads:
                raise ValueError(
                    f"width {self.width} is not a multiple of {name}.heads {stack.heads}: choose a "
                    "divisor"
                )
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd: sinusoidal positions need an even width")
        if not any(isinstance(part, CrossAttention) for part in self.decoder.sublayers):
            raise ValueError(
                "decoder.sublayers never look at the source: add cross_attention to the list"
            )
        return self
