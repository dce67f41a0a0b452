"""Recipe section `model`: the seven slots of a deep Transformer and their variants."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from nmtdeep.config import slots
from nmtdeep.config.section import Count, Depth, Positive, Probability, Section


class Stack(Section):
    """What encoder and decoder have in common."""

    depth: Depth = Field(6, description="number of layers")
    heads: Count = Field(8, description="attention heads; must divide the model width")
    feed_forward: Count = Field(2048, description="width inside the feed-forward sublayer")
    residual: slots.Residual = Field(slots.PreNorm(), description="where the norm stands")
    combination: slots.Combination = Field(
        slots.PlainStack(), description="what each layer reads of those below it"
    )


class Encoder(Stack):
    """A stack of self-attention and feed-forward sublayers."""


class Decoder(Stack):
    """A decoder kind is its list of sublayers."""

    sublayers: tuple[slots.DecoderSublayer, ...] = Field(
        (slots.SelfAttention(), slots.CrossAttention(), slots.FeedForward()),
        min_length=1,
        max_length=16,
        description="the sublayers of each layer, in order",
    )


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
    bridge: slots.Bridge = Field(
        slots.TopLayer(), description="which encoder output each decoder layer attends to"
    )
    positions: slots.Positions = Field(
        slots.Sinusoidal(), description="how a token knows its place"
    )
    embeddings: Embeddings = Embeddings()
    dropout: Dropout = Dropout()
    initializer: slots.Initializer = Field(slots.Glorot(), description="where training starts")
    biases: Literal["all", "inner"] = Field(
        "all",
        description="of linear maps; all: each has one; inner: only the first of each feed-forward "
        "pair (release of Xu et al. 2020)",
    )
    norm_epsilon: Positive = Field(1e-5, description="epsilon of every layer norm")

    @model_validator(mode="after")
    def _check(self) -> Model:
        for name, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            _check_stack(name, stack, self.width)
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd: sinusoidal positions need an even width")
        _check_sublayers(self.decoder.sublayers)
        if isinstance(self.bridge, slots.Transparent) and not isinstance(
            self.encoder.combination, slots.PlainStack
        ):
            raise ValueError(
                "bridge: transparent mixes the encoder's layers for the decoder, so that the top "
                f"of encoder.combination: {self.encoder.combination.type} would never be read: "
                "choose one of them"
            )
        if isinstance(self.initializer, slots.AdminProfile):
            for name, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
                if not isinstance(stack.residual, slots.Admin):
                    raise ValueError(
                        f"initializer: admin sets omegas, which {name}.residual: "
                        f"{stack.residual.type} does not have: set {name}.residual: admin"
                    )
        return self


def _check_stack(name: str, stack: Stack, width: int) -> None:
    if width % stack.heads:
        raise ValueError(
            f"width {width} is not a multiple of {name}.heads {stack.heads}: choose a divisor"
        )
    match stack.combination:
        case slots.Learned(groups=int(groups)) if width % groups:
            raise ValueError(
                f"width {width} is not a multiple of {name}.combination.groups {groups}: choose a "
                "divisor"
            )
        case slots.SparseBlocks(blocks=tuple(blocks)) if blocks[-1] != stack.depth:
            raise ValueError(
                f"{name}.combination.blocks ends at {blocks[-1]}, but {name}.depth is "
                f"{stack.depth}: end with the depth"
            )


def _check_sublayers(sublayers: tuple[slots.DecoderSublayer, ...]) -> None:
    kinds = [part.type for part in sublayers]
    if not {"cross_attention", "merged_attention"} & set(kinds):
        raise ValueError(
            "decoder.sublayers never look at the source: add cross_attention to the list"
        )
    if {"cross_attention", "merged_attention"} <= set(kinds):
        raise ValueError(
            "decoder.sublayers: merged_attention attends to the source already: leave out "
            "cross_attention"
        )
    twice = sorted({kind for kind in kinds if kinds.count(kind) > 1} - {"feed_forward"})
    if twice:
        raise ValueError(f"decoder.sublayers name {twice[0]} twice: once is enough")
