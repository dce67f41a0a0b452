"""From config values to the parts of a layer: sublayers, residual wrappers and norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, assert_never

from torch import nn

from nmtdeep.config import slots
from nmtdeep.config.model import Decoder, Model
from nmtdeep.config.model import Stack as StackConfig
from nmtdeep.model.layer_variants import WEIGHTS, BottomToTop, GatedSum, RungeKutta, WeightedSum
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.average_attention import AverageAttention
from nmtdeep.model.layers.feed_forward import FeedForward, Gated
from nmtdeep.model.layers.merged_attention import Both, MergedAttention
from nmtdeep.model.layers.norm import HeadNorm, Norm, RmsNorm
from nmtdeep.model.layers.positions import RelativePositions, Rotary
from nmtdeep.model.layers.residual import (
    Admin,
    CompleteP,
    DeepNorm,
    NoNorm,
    NormalizedResidual,
    PostNorm,
    PreNorm,
    Residual,
    ReZero,
    deep_norm_scales,
)
from nmtdeep.model.layers.ssru import Ssru
from nmtdeep.model.layers.sublayer import Sublayer
from nmtdeep.model.transformer import Layer

# The ReLU is computed with the linear map before it.
ACTIVATIONS: dict[str, Callable[[], nn.Module | None]] = {
    "relu": lambda: None,
    "gelu": nn.GELU,
    "swish": nn.SiLU,
    "geglu": lambda: Gated(nn.GELU()),
    "swiglu": lambda: Gated(nn.SiLU()),
}


def layer_norm(model: Model) -> Norm:
    """A norm over the model's width."""
    kind = {"layer_norm": nn.LayerNorm, "rms_norm": RmsNorm}[model.norm]
    return kind(model.width, eps=model.norm_epsilon)


def norm_place(residual: slots.Residual) -> Literal["before", "after", "nowhere"]:
    """The place of a stack's norms: before the sublayers, after the sums, or none."""
    match residual:
        case slots.PreNorm() | slots.NormalizedResidual() | slots.CompleteP() | slots.RungeKutta():
            return "before"
        case slots.PostNorm() | slots.BottomToTop() | slots.Admin() | slots.DeepNorm():
            return "after"
        case slots.ReZero() | slots.NoNorm():
            return "nowhere"
        case slots.ResidualVariant():
            return residual.norms
        case _ as unknown:
            assert_never(unknown)


def top_norm(model: Model, stack: StackConfig) -> nn.Module:
    """The norm on top of a stack, where its layers do not end with one."""
    return layer_norm(model) if norm_place(stack.residual) == "before" else nn.Identity()


def layer(model: Model, stack: StackConfig) -> Layer:
    """A layer of a stack."""
    wrappers = [residual(model, stack, sublayer(model, stack, part)) for part in stack.sublayers]
    drop = model.dropout.layer
    if isinstance(stack.combination, slots.CombinationVariant):
        own: Layer | None = stack.combination.layer(wrappers, model, stack)
        if own is not None:
            return own
    match stack.residual:
        case slots.BottomToTop():
            return BottomToTop(wrappers, drop=drop)
        case slots.RungeKutta(order=order, weights=weights, function=function):
            total: GatedSum | WeightedSum = GatedSum(model.width)
            if weights != "gate":
                gamma = WEIGHTS[order] if weights == "fixed" else (1.0,) * order
                total = WeightedSum(gamma, learned=weights == "learned")
            return RungeKutta(wrappers, order=order, total=total, function=function, drop=drop)
        case _:
            return Layer(wrappers, drop=drop)


def residual(model: Model, stack: StackConfig, sublayer: Sublayer) -> Residual:
    """`sublayer` in the residual wrapper of its stack."""
    dropout = model.dropout.residual
    match stack.residual:
        case slots.PreNorm() | slots.RungeKutta():
            return PreNorm(sublayer, layer_norm(model), dropout=dropout)
        case slots.PostNorm() | slots.BottomToTop():
            return PostNorm(sublayer, layer_norm(model), dropout=dropout)
        case slots.NormalizedResidual():
            return NormalizedResidual(sublayer, layer_norm(model), dropout=dropout)
        case slots.Admin():
            return Admin(sublayer, layer_norm(model), dropout=dropout)
        case slots.DeepNorm():
            scales = deep_norm_scales(model.encoder.depth, model.decoder.depth)
            alpha = scales[stack is model.decoder].alpha
            return DeepNorm(sublayer, layer_norm(model), alpha=alpha, dropout=dropout)
        case slots.CompleteP(base_depth=base, alpha=exponent):
            ratio, norm = stack.depth / base, layer_norm(model)
            return CompleteP(sublayer, norm, ratio=ratio, alpha=exponent, dropout=dropout)
        case slots.ReZero():
            return ReZero(sublayer, dropout=dropout)
        case slots.NoNorm():
            return NoNorm(sublayer, dropout=dropout)
        case slots.ResidualVariant() as chosen:
            return chosen.build(sublayer, model, stack)
        case _ as unknown:
            assert_never(unknown)


def sublayer(model: Model, stack: StackConfig, part: slots.DecoderSublayer) -> Sublayer:
    """The sublayer that `part` describes."""
    match part:
        case slots.SelfAttention():
            return _self_attention(model, stack)
        case slots.CrossAttention():
            return _cross_attention(model, stack)
        case slots.FeedForward():
            return _feed_forward(model, stack)
        case slots.AverageAttention():
            return _average_attention(model, stack, part)
        case slots.Ssru():
            return Ssru(model.width)
        case slots.MergedAttention(average="simplified"):
            return MergedAttention(_cross_attention(model, stack))
        case slots.MergedAttention(average="average_attention"):
            average = _average_attention(model, stack, slots.AverageAttention())
            return Both(average, _cross_attention(model, stack))
        case slots.MergedAttention():
            return Both(_self_attention(model, stack), _cross_attention(model, stack))
        case slots.SublayerVariant():
            return part.build(model, stack)
        case _ as unknown:
            assert_never(unknown)


def _self_attention(model: Model, stack: StackConfig) -> SelfAttention:
    relative, rotary, head_width = None, None, model.width // stack.heads
    if isinstance(model.positions, slots.Relative):
        clip, values = model.positions.clip, model.positions.values
        relative = RelativePositions(head_width, clip, values=values)
    elif isinstance(model.positions, slots.PositionsVariant):
        relative = model.positions.in_attention(model, stack)
    elif isinstance(model.positions, slots.Rotary):
        rotary = Rotary(head_width, base=model.positions.base)
    return SelfAttention(
        model.width,
        stack.heads,
        dropout=model.dropout.attention,
        causal=isinstance(stack, Decoder),
        bias=model.biases == "all",
        relative=relative,
        norms=_head_norms(model, stack),
        rotary=rotary,
    )


def _cross_attention(model: Model, stack: StackConfig) -> CrossAttention:
    projected = isinstance(model.bridge, slots.Projection)
    return CrossAttention(
        model.width,
        stack.heads,
        memory=model.width if projected else model.encoder.width,
        dropout=model.dropout.attention,
        bias=model.biases == "all",
        norms=_head_norms(model, stack),
    )


def _head_norms(model: Model, stack: StackConfig) -> list[HeadNorm]:
    """The norms of queries and keys, if there are any."""
    count, head_width = {"none": 0, "rms_norm": 2}[model.qk_norm], model.width // stack.heads
    return [HeadNorm(head_width, eps=model.norm_epsilon) for _ in range(count)]


def _feed_forward(model: Model, stack: StackConfig) -> FeedForward:
    return FeedForward(
        model.width,
        stack.feed_forward,
        activation=ACTIVATIONS[model.activation](),
        dropout=model.dropout.activation,
        bias=model.biases == "all",
    )


def _average_attention(
    model: Model, stack: StackConfig, part: slots.AverageAttention
) -> AverageAttention:
    inner = _feed_forward(model, stack) if part.feed_forward else None
    return AverageAttention(model.width, gate=part.gate, feed_forward=inner)
