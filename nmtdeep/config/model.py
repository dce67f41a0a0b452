"""Recipe section `model`: the seven slots of a deep Transformer and their variants."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from nmtdeep.config import slots
from nmtdeep.config.section import (
    Bool,
    ConflictError,
    Count,
    Depth,
    Positive,
    Probability,
    Section,
    later,
)

SIDES = ("encoder", "decoder")


class Stack(Section):
    """The common settings of encoder and decoder."""

    depth: Depth = Field(6, description="number of layers")
    width: Count | None = later(None, "width of this stack; null: model.width")
    heads: Count = Field(8, description="attention heads; must divide the stack's width")
    feed_forward: Count = Field(2048, description="width inside the feed-forward sublayer")
    residual: slots.Residual = Field(slots.PreNorm(), description="where the norm is")
    combination: slots.Combination = Field(
        slots.PlainStack(), description="what each layer reads from the layers below it"
    )
    initializer: slots.Initializer | None = later(
        None,
        "initial values of this stack's matrices; null: those of model.initializer, "
        "which embeddings always take",
    )
    sublayers: tuple[slots.DecoderSublayer, ...] = ()

    def with_depth(self, depth: int) -> Self:
        """The stack with another depth; a list of block boundaries then ends there too."""
        changes: dict[str, Any] = {"depth": depth}
        combination = self.combination
        if isinstance(combination, slots.SparseBlocks) and isinstance(combination.blocks, tuple):
            blocks = (*(end for end in combination.blocks if end < depth), depth)
            changes["combination"] = combination.model_copy(update={"blocks": blocks})
        return self.model_copy(update=changes)


class Encoder(Stack):
    """A stack of layers, each a list of sublayers."""

    sublayers: tuple[slots.EncoderSublayer, ...] = Field(
        (slots.SelfAttention(), slots.FeedForward()),
        min_length=1,
        max_length=16,
        description="the sublayers of each layer, in order",
    )


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
    bias: Bool = Field(
        False, description="one vector added to every embedding of both sides (Zhang et al. 2019)"
    )
    scale: Literal["sqrt_width", "one"] = Field(
        "sqrt_width", description="factor of every embedding before positions are added"
    )
    start: Literal["eos", "pad", "zero"] = Field(
        "eos",
        description="the embedding that the decoder reads first; eos: that of </s>; pad: that of "
        "<pad>, as in converted models of Marian; zero: zeros, as Marian and Firefox's engine do",
    )
    output_bias: Bool = Field(False, description="a number for each type, added to its logit")


class Dropout(Section):
    """Dropout probabilities, by place."""

    embedding: Probability = Field(0.1, description="after embedding plus position")
    residual: Probability = Field(0.1, description="on each sublayer's output")
    attention: Probability = Field(0.0, description="on attention weights")
    activation: Probability = Field(
        0.0, description="after the activation of the feed-forward sublayer"
    )
    layer: Probability = Field(
        0.0, description="of a whole layer, which training then skips: LayerDrop (Fan et al. 2020)"
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
    activation: Literal["relu", "gelu", "swish", "geglu", "swiglu"] = Field(
        "relu",
        description="activation function of every feed-forward sublayer; geglu, swiglu: gelu or "
        "swish of one map times another (Shazeer 2020); of their three matrices, two thirds of "
        "feed_forward have the parameters of two",
    )
    norm: Literal["layer_norm", "rms_norm"] = Field(
        "layer_norm",
        description="every norm of the model; rms_norm: without mean and bias (Zhang and Sennrich "
        "2019)",
    )
    qk_norm: Literal["none", "rms_norm"] = Field(
        "none",
        description="a norm over the features of each head's queries, and of its keys, in all "
        "attention (Dehghani et al. 2023)",
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
    norm_epsilon: Positive = Field(1e-5, description="epsilon of every norm")

    def width_of(self, side: str) -> int:
        """The width of a stack."""
        stack: Stack = getattr(self, side)
        return stack.width or self.width

    @property
    def widths(self) -> str:
        """`512`, or `1024+512` of encoder and decoder."""
        return "+".join(dict.fromkeys(str(self.width_of(side)) for side in SIDES))

    @property
    def depths(self) -> str:
        """Numbers of layers of encoder and decoder: `6+6`."""
        return f"{self.encoder.depth}+{self.decoder.depth}"

    def within(self, side: str) -> Model:
        """The model with the width of one stack, and with the width of each in its section."""
        stacks = {
            name: getattr(self, name).model_copy(update={"width": self.width_of(name)})
            for name in SIDES
        }
        return self.model_copy(update={**stacks, "width": self.width_of(side)})

    @model_validator(mode="after")
    def _check(self) -> Model:
        for side in SIDES:
            _check_stack(self, side)
            _check_layer(self, side)
        _check_widths(self)
        combination = self.encoder.combination
        if self.bridge.type == "transparent" and isinstance(combination, slots.CombinationVariant):
            what = "bridge: transparent mixes the encoder's layers for the decoder, so that the "
            what += f"top of encoder.combination: {combination.type} would never be read"
            raise ConflictError(what, "bridge", "encoder.combination", hint="choose one of them")
        return self


def _check_stack(model: Model, side: str) -> None:
    """Width, combination, residual and initializer of a stack."""
    stack: Stack = getattr(model, side)
    width, width_key = model.width_of(side), f"{side}.width" if stack.width else "width"
    place, residual = f"{side}.combination", f"{side}.residual"
    if width % 2:
        what = f"width {width} is odd"
        raise ConflictError(what, width_key, hint="sinusoidal positions need an even width")
    divisors = {"heads": stack.heads}
    match stack.combination:
        case slots.Learned(groups=int(groups)):
            divisors["combination.groups"] = groups
        case slots.SparseBlocks(blocks=tuple(blocks)) if blocks[-1] != stack.depth:
            what = f"blocks end at {blocks[-1]}, but {side}.depth is {stack.depth}"
            keys = (f"{place}.blocks", f"{side}.depth")
            raise ConflictError(what, *keys, hint="end with the depth")
        case slots.OfSublayers() if conflict := of_sublayers(model, side):
            raise conflict
    for key, divisor in divisors.items():
        if width % divisor:
            what = f"width {width} is not a multiple of {side}.{key} {divisor}"
            hint = "choose a divisor of the width"
            raise ConflictError(what, f"{side}.{key}", width_key, hint=hint)
    if model.positions.type == "rotary" and width // stack.heads % 2:
        what = f"{width // stack.heads} features of a head are no pairs to rotate"
        keys = (f"{side}.heads", width_key)
        raise ConflictError(what, *keys, hint="make width / heads even")
    chosen = f"{side}.initializer" if stack.initializer else "initializer"
    admin = (stack.initializer or model.initializer).type == "admin"
    if admin and stack.residual.type != "admin":
        what = f"{chosen}: admin sets omegas, which {residual}: {stack.residual.type} does not have"
        raise ConflictError(what, chosen, residual, hint=f"set {residual}: admin")


def of_sublayers(model: Model, side: str) -> ConflictError | None:
    """What forbids the combination of a stack to connect sublayers, if anything does."""
    stack: Stack = getattr(model, side)
    place, residual, part = f"{side}.combination", f"{side}.residual", stack.combination
    if stack.residual.type not in ("pre_norm", "no_norm"):
        what = f"{part.type} works only with residual: pre_norm or no_norm, not "
        hint = f"set model.{residual}: pre_norm"
        return ConflictError(what + stack.residual.type, place, residual, hint=hint)
    if model.dropout.layer:
        what = f"{place}: {part.type} connects sublayers, so that there are no layers to skip"
        return ConflictError(what, "dropout.layer", hint="set dropout.layer: 0")
    return None


def _check_layer(model: Model, side: str) -> None:
    """The sublayers of a layer."""
    parts: tuple[slots.DecoderSublayer, ...] = getattr(model, side).sublayers
    ours = [part.type for part in parts if not isinstance(part, slots.SublayerVariant)]
    twice = sorted({kind for kind in ours if ours.count(kind) > 1} - {"feed_forward"})
    reads = {"cross_attention", "merged_attention"} & {*ours}
    external = any(isinstance(part, slots.SublayerVariant) and part.reads_source for part in parts)
    what, hint = "", "leave out one"
    if twice:
        what = f"{twice[0]} is listed twice, and only feed_forward can be repeated"
    elif side == "decoder" and not (reads or external):
        what, hint = "none of them attends to the source", "add cross_attention to the list"
    elif len(reads) > 1:
        what, hint = "merged_attention attends to the source already", "leave out cross_attention"
    if what:
        raise ConflictError(what, f"{side}.sublayers", hint=hint)


def _check_widths(model: Model) -> None:
    """What both stacks share needs one width."""
    widths = [model.width_of(side) for side in SIDES]
    if widths[0] == widths[1]:
        return
    projected = model.bridge.type == "projection"
    merged = [part for part in model.decoder.sublayers if isinstance(part, slots.MergedAttention)]
    joint = any(part.average == "simplified" for part in merged)
    what = f"encoder ({widths[0]}) and decoder ({widths[1]}) differ in width and cannot share "
    sharing, bias, values = "embeddings.sharing", "embeddings.bias", "values in merged_attention"
    for wrong, key, part, cure in (
        (model.embeddings.sharing == "all", sharing, "embeddings", f"{sharing}: decoder"),
        (model.embeddings.bias, bias, "the bias of embeddings", f"{bias}: false"),
        (joint and not projected, "decoder.sublayers", values, "bridge: projection"),
    ):
        if wrong:
            keys = (key, "encoder.width", "decoder.width")
            raise ConflictError(f"{what}{part}", *keys, hint=f"set model.{cure}")
