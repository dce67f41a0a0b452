"""Recipe section `model`: the seven slots of a deep Transformer and their variants."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from nmtdeep.config import slots
from nmtdeep.config.section import ConflictError, Count, Depth, Positive, Probability, Section

SIDES = ("encoder", "decoder")


class Stack(Section):
    """The common settings of encoder and decoder."""

    depth: Depth = Field(6, description="number of layers")
    heads: Count = Field(8, description="attention heads; must divide the model width")
    feed_forward: Count = Field(2048, description="width inside the feed-forward sublayer")
    residual: slots.Residual = Field(slots.PreNorm(), description="where the norm is")
    combination: slots.Combination = Field(
        slots.PlainStack(), description="what each layer reads from the layers below it"
    )

    def with_depth(self, depth: int) -> Self:
        """The stack with another depth; a list of block boundaries then ends there too."""
        changes: dict[str, Any] = {"depth": depth}
        combination = self.combination
        if isinstance(combination, slots.SparseBlocks) and isinstance(combination.blocks, tuple):
            blocks = (*(end for end in combination.blocks if end < depth), depth)
            changes["combination"] = combination.model_copy(update={"blocks": blocks})
        return self.model_copy(update=changes)


class Encoder(Stack):
    """A stack of self-attention and feed-forward sublayers."""


class Decoder(Stack):
    """A decoder kind is its list of sublayers."""

    sublayers: tuple[slots.DecoderSublayer, ...] = Field(
        (slots.SelfAttention(), slots.CrossAttention(), slots.FeedForward()),
        max_length=16,
        description="the sublayers of each layer, in order",
    )


class Embeddings(Section):
    """Token embeddings and the output matrix."""

    sharing: Literal["all", "decoder", "none"] = Field(
        "all",
        description="all: source, target and output share one matrix; decoder: target and output "
        "share; none: three matrices",
    )
    bias: bool = Field(
        False, description="one vector added to every embedding of both sides (Zhang et al. 2019)"
    )
    scale: Literal["sqrt_width", "one"] = Field(
        "sqrt_width", description="factor of every embedding before positions are added"
    )
    start: Literal["eos", "pad"] = Field(
        "eos",
        description="the embedding that the decoder reads first; eos: that of </s>; pad: that of "
        "<pad>, as in models that Marian trained",
    )
    output_bias: bool = Field(False, description="a number for each type, added to its logit")


class Dropout(Section):
    """Dropout probabilities, by place."""

    embedding: Probability = Field(0.1, description="after embedding plus position")
    residual: Probability = Field(0.1, description="on each sublayer's output")
    attention: Probability = Field(0.0, description="on attention weights")
    activation: Probability = Field(
        0.0, description="after the activation of the feed-forward sublayer"
    )


class Model(Section):
    """The Transformer: seven slots and their sizes."""

    width: Count = Field(512, description="model width d")
    encoder: Encoder = Encoder()
    decoder: Decoder = Decoder()
    bridge: slots.Bridge = Field(
        slots.TopLayer(), description="which encoder output each decoder layer attends to"
    )
    positions: slots.Positions = Field(
        slots.Sinusoidal(), description="representation of the order of tokens"
    )
    activation: Literal["relu", "gelu", "swish"] = Field(
        "relu", description="activation function of every feed-forward sublayer"
    )
    embeddings: Embeddings = Embeddings()
    dropout: Dropout = Dropout()
    initializer: slots.Initializer = Field(
        slots.Glorot(), description="initial values of the parameters"
    )
    biases: Literal["all", "inner"] = Field(
        "all",
        description="which linear maps have a bias; all: each one; inner: only the first of each "
        "feed-forward pair (release of Xu et al. 2020)",
    )
    norm_epsilon: Positive = Field(1e-5, description="epsilon of every layer norm")

    @model_validator(mode="after")
    def _check(self) -> Model:
        if self.width % 2:
            what = f"width {self.width} is odd"
            raise ConflictError(what, "width", hint="sinusoidal positions need an even width")
        for name, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            _check_stack(name, stack, self.width)
            key, norm = f"{name}.residual", stack.residual.type
            if self.initializer.type == "admin" and norm != "admin":
                what = f"initializer: admin sets omegas, which {key}: {norm} does not have"
                raise ConflictError(what, "initializer", key, hint=f"set {key}: admin")
        _check_sublayers(self.decoder.sublayers)
        combination = self.encoder.combination.type
        if self.bridge.type == "transparent" and combination != "residual":
            what = (
                "bridge: transparent mixes the encoder's layers for the decoder, so that the top "
            )
            what += f"of encoder.combination: {combination} would never be read"
            raise ConflictError(what, "bridge", "encoder.combination", hint="choose one of them")
        return self


def _check_stack(name: str, stack: Stack, width: int) -> None:
    divisors = {"heads": stack.heads}
    match stack.combination:
        case slots.Learned(groups=int(groups)):
            divisors["combination.groups"] = groups
        case slots.SparseBlocks(blocks=tuple(blocks)) if blocks[-1] != stack.depth:
            what = f"blocks end at {blocks[-1]}, but {name}.depth is {stack.depth}"
            keys = (f"{name}.combination.blocks", f"{name}.depth")
            raise ConflictError(what, *keys, hint="end with the depth")
    for key, divisor in divisors.items():
        if width % divisor:
            what = f"width {width} is not a multiple of {name}.{key} {divisor}"
            hint = "choose a divisor of the width"
            raise ConflictError(what, f"{name}.{key}", "width", hint=hint)


def _check_sublayers(sublayers: tuple[slots.DecoderSublayer, ...]) -> None:
    kinds = [part.type for part in sublayers]
    twice = sorted({kind for kind in kinds if kinds.count(kind) > 1} - {"feed_forward"})
    what, hint = "", "leave out one"
    if not {"cross_attention", "merged_attention"} & set(kinds):
        what, hint = "none of them attends to the source", "add cross_attention to the list"
    elif {"cross_attention", "merged_attention"} <= set(kinds):
        what, hint = "merged_attention attends to the source already", "leave out cross_attention"
    elif twice:
        what = f"{twice[0]} is listed twice"
    if what:
        raise ConflictError(what, "decoder.sublayers", hint=hint)
