"""Initializers: the values of a finished model.

Each is a rule for the standard deviation of every matrix, by its role and its position; embeddings,
encoder and decoder can have different ones. All share one walk over the model, by structure and
never by parameter names, which fails with the names of the parameters that no rule covers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.errors import UserError
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.initial_values import InitMatrix
from nmtdeep.model.layers.norm import Norm
from nmtdeep.model.layers.residual import Admin, deep_norm_scales
from nmtdeep.model.layers.sublayer import Sublayer
from nmtdeep.model.transformer import Stack, Transformer

Side = Literal["encoder", "decoder"]


class Sample(NamedTuple):
    """Real sentences to measure on.

    Attributes:
        source: ids `(sentences, source)`, padded at the end.
        target: ids `(sentences, target)` that the decoder reads, padded at the end.
    """

    source: Tensor
    target: Tensor


# A standard deviation; or what fills a tensor itself, called as `draw(tensor, generator=...)`.
Deviation = float | Callable[..., object]
# Of the matrix, its stack, and its layer there, which counts from 1.
MatrixRule = Callable[[InitMatrix, Side, int], Deviation]
TableRule = Callable[[Tensor], Deviation]
Law = Literal["uniform", "normal"]
CrossAttentionFans = Literal["joint", "separate"]


def _width_deviation(table: Tensor) -> float:
    return 1 / math.sqrt(table.shape[1])


class Rules(NamedTuple):
    """An initializer: the deviation of every matrix and every table, and their laws.

    `output` is that of an output matrix that is no embedding as well; None: as the tables.
    `biases` are those of feed-forward sublayers: zero, or U(-b, b) with b = 1/sqrt(fan_in).
    """

    matrix: MatrixRule
    table: TableRule = _width_deviation
    matrices: Law = "uniform"
    tables: Law = "normal"
    biases: Literal["zero", "uniform"] = "zero"
    output: TableRule | None = None


def glorot(
    *,
    gain: float = 1.0,
    embeddings: Literal["normal", "glorot"] = "normal",
    cross_attention: CrossAttentionFans = "joint",
    feed_forward: Literal["glorot", "linear"] = "glorot",
) -> Rules:
    """Glorot uniform: W ~ U(-b, b), b = gain sqrt(6 / (fan_in + fan_out)); E ~ N(0, 1/d).

    Query, key and value count as one d x 3d matrix, so their bound is gain sqrt(6 / 4d), in
    cross-attention too (fairseq, and the release of Wang et al. 2019), or there, if these are
    "separate", as three d x d matrices (the release of Zhang et al. 2019). Biases 0, norms (1, 0),
    the padding row 0; the embedding bias U(-sqrt(3/d), sqrt(3/d)) (that release again).
    `embeddings="glorot"`: E ~ U(-e, e), e = sqrt(6 / (V + d)), the baseline of Xu et al. 2020.
    `feed_forward="linear"`: its maps U(-b, b), b = gain / sqrt(fan_in), its biases without gain:
    torch.nn.Linear's start, which the releases of Wu et al. 2021 and Takase et al. 2022 keep.
    """
    normal, linear = embeddings == "normal", feed_forward == "linear"

    def deviation(matrix: InitMatrix, side: Side, layer: int) -> float:
        if linear and matrix.role in ("inner", "outer"):
            return gain / math.sqrt(3 * matrix.fan_in)
        return gain * glorot_deviation(matrix, cross_attention)

    return Rules(
        deviation,
        _width_deviation if normal else lambda table: math.sqrt(2 / sum(table.shape)),
        tables="normal" if normal else "uniform",
        biases="uniform" if linear else "zero",
    )


def lipschitz(
    *, scale: float = 1.0, embeddings: Literal["lipschitz", "normal"] = "lipschitz"
) -> Rules:
    """W ~ U(-l, l), l = sqrt(1 / isize); E ~ U(-e, e), e = sqrt(2 / (esize + vsize)).

    Xu et al. 2020, section 4 and the release: isize is the matrix's input dimension, so the second
    feed-forward map has the bound 1 / sqrt(f). Biases 0, norms (1, 0), the padding row 0. `scale`
    multiplies l and e. `embeddings="normal"`: E ~ N(0, 1/d), as with `glorot`. An output matrix
    that is no embedding is a linear map, with l.
    """
    normal = embeddings == "normal"
    return Rules(
        lambda matrix, side, layer: scale * math.sqrt(1 / (3 * matrix.fan_in)),
        _width_deviation if normal else lambda table: scale * math.sqrt(2 / (3 * sum(table.shape))),
        tables="normal" if normal else "uniform",
        output=lambda weight: partial(
            nn.init.uniform_, a=-scale * weight.shape[1] ** -0.5, b=scale * weight.shape[1] ** -0.5
        ),
    )


def depth_scaled(
    *, alpha: float = 1.0, exponent: float = 0.5, cross_attention: CrossAttentionFans = "joint"
) -> Rules:
    """W ~ U(-gamma alpha / sqrt(l), gamma alpha / sqrt(l)) in layer l (Zhang et al. 2019, Eq. 15).

    gamma is Glorot's bound, see `glorot`; l counts from 1 in the encoder and again in the decoder.
    The authors' release has l^(-1/4) instead of l^(-1/2), and so has their Table 1:
    `exponent=0.25`.
    """
    return Rules(
        lambda matrix, side, layer: (
            glorot_deviation(matrix, cross_attention) * alpha / math.pow(layer, exponent)
        )
    )


def deep_norm(encoder_depth: int, decoder_depth: int) -> Rules:
    """Glorot normal; value, output and feed-forward matrices with gain beta (Wang et al. 2022).

    Figure 2 there: beta of `deep_norm_scales`; queries and keys have gain 1.
    """
    scales = deep_norm_scales(encoder_depth, decoder_depth)

    def deviation(matrix: InitMatrix, side: Side, layer: int) -> float:
        square = matrix.role in ("query", "key", "value")
        fan_out = len(matrix.weight) if square else matrix.fan_out
        neutral = matrix.role in ("query", "key", "bridge")
        gain = 1.0 if neutral else scales[side == "decoder"].beta
        return gain * math.sqrt(2 / (matrix.fan_in + fan_out))

    return Rules(deviation, matrices="normal")


def t_fixup(encoder_depth: int, decoder_depth: int) -> Rules:
    """Glorot with depth's scale on values, outputs, feed-forward maps and embeddings.

    Huang et al. 2020, section 3.2, for N layers: 0.67 N^(-1/4) in the encoder, (9 N)^(-1/4) in the
    decoder and for the embeddings N(0, 1/d); a shared output matrix takes the embeddings' scale.
    Queries and keys stay at Glorot's bound of the joint matrix, values start from that of d x d.
    """
    encoder, decoder = 0.67 * encoder_depth**-0.25, math.pow(9 * decoder_depth, -0.25)

    def deviation(matrix: InitMatrix, side: Side, layer: int) -> float:
        if matrix.role in ("query", "key", "bridge"):
            return glorot_deviation(matrix)
        scale = encoder if side == "encoder" else decoder
        fan_out = len(matrix.weight) if matrix.role == "value" else matrix.fan_out
        return scale * math.sqrt(2 / (matrix.fan_in + fan_out))

    return Rules(deviation, lambda x: decoder * _width_deviation(x), output=_width_deviation)


def draw_values(model: Transformer, tables: Rules, *, seed: int, **stacks: Rules) -> None:
    """Draw every matrix and table with the deviation of its rule; all else is a constant.

    Args:
        tables: for embeddings and output.
        stacks: for `encoder` and `decoder`.

    Raises:
        UserError: if no rule covers a parameter of the model.
    """
    generator = torch.Generator().manual_seed(seed)
    covered: Counter[int] = Counter()
    matrices = _matrices(model, stacks, generator), _constants(model)
    drawn = chain(_tables(model, tables, generator), *matrices, _biases(model, stacks, generator))
    with torch.no_grad():
        for target, value in drawn:
            target.copy_(value)
            covered[_storage(target)] += target.numel()
    missed = [
        name
        for name, parameter in model.named_parameters()
        if covered[_storage(parameter)] < parameter.numel()
    ]
    if missed:
        what = f"no initializer covers the parameters {', '.join(missed)}"
        where = f"package {', '.join(dict.fromkeys(_package(model, name) for name in missed))}"
        hint = "correct the package: its modules list them in init_matrices() or init_constants()"
        raise UserError(what, where=where, hint=hint)


def _package(model: Transformer, parameter: str) -> str:
    """The package of the innermost class around a parameter that is not torch's or ours."""
    modules, names = [model], parameter.split(".")[:-1]
    for name in names:
        modules.append(getattr(modules[-1], name))
    packages = [type(module).__module__.partition(".")[0] for module in reversed(modules)]
    return next((name for name in packages if name not in ("torch", "nmtdeep")), "nmtdeep")


def admin(model: Transformer, sample: Sample, stacks: Iterable[Stack]) -> None:
    """omega_i = sqrt(1 + sum_{j < i} Var f_j) for the i-th sublayer of each of these `stacks`.

    Liu et al. 2020, section 4.2: the variances of the sublayers' outputs are measured in one
    forward pass of `sample` with omega = 1 (plain post-norm) and without dropout; 1 is the variance
    of the first residual's input, with which the released code starts its sum.
    """
    variances = _variances(model, sample)
    for stack in stacks:
        total = 1.0
        for wrapper in (wrapper for layer in stack for wrapper in layer):
            if isinstance(wrapper, Admin):
                with torch.no_grad():
                    wrapper.omega.fill_(math.sqrt(total))
            total += variances[wrapper.sublayer]


def _variances(model: Transformer, sample: Sample) -> dict[Sublayer, float]:
    """Variance of each sublayer's output at the real positions of `sample`."""
    variances: dict[Sublayer, float] = {}
    with ExitStack() as hooks, torch.no_grad():
        hooks.callback(model.train, model.training)
        for stack, ids in ((model.encoder, sample.source), (model.decoder, sample.target)):

            def note(module: Any, _: Any, output: Tensor, real: Tensor = ids != model.pad) -> None:
                variances[module] = float(output[real].var())

            for wrapper in (wrapper for layer in stack for wrapper in layer):
                hooks.enter_context(wrapper.sublayer.register_forward_hook(note))
        model.eval()(sample.source, sample.target)
    return variances


def glorot_deviation(matrix: InitMatrix, cross_attention: CrossAttentionFans = "joint") -> float:
    """sqrt(2 / (fan_in + fan_out)): the bound of a uniform law is sqrt(3) times that."""
    separate = matrix.across and cross_attention == "separate"
    return math.sqrt(2 / (matrix.fan_in + (len(matrix.weight) if separate else matrix.fan_out)))


def _storage(tensor: Tensor) -> int:
    """The same for a parameter and for rows of it."""
    return tensor.untyped_storage().data_ptr()


def _draw(like: Tensor, deviation: Deviation, law: Law, generator: torch.Generator) -> Tensor:
    values = torch.empty(like.shape)
    if callable(deviation):
        deviation(values, generator=generator)
        return values
    if law == "normal":
        return values.normal_(0, deviation, generator=generator)
    bound = math.sqrt(3) * deviation
    return values.uniform_(-bound, bound, generator=generator)


def _tables(
    model: Transformer, rules: Rules, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Embeddings and output, a shared table once; and the embedding bias."""
    sides = (model.source_embedding, model.target_embedding)
    tables = {id(part.weight): part.weight for part in (*sides, model.output)}
    embedded = {id(part.weight) for part in sides}
    for number, table in tables.items():
        rule = rules.table if number in embedded else rules.output or rules.table
        value = _draw(table, rule(table), rules.tables, generator)
        value[model.pad] = 0
        yield table, value
    bias = model.source_embedding.bias
    if bias is not None:
        yield bias, _draw(bias, bias.numel() ** -0.5, "uniform", generator)


def _matrices(
    model: Transformer, rules: Mapping[str, Rules], generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Those of the layers; those of the bridge count as the encoder's, in layer 1."""
    sides: tuple[tuple[Side, Stack], ...] = (("encoder", model.encoder), ("decoder", model.decoder))
    placed = [
        (matrix, side, number)
        for side, stack in sides
        for number, layer in enumerate(stack, start=1)
        for matrix in layer.init_matrices()
    ]
    placed += [(matrix, "encoder", 1) for matrix in model.bridge.init_matrices()]
    for matrix, side, number in placed:
        deviation = rules[side].matrix(matrix, side, number)
        yield matrix.weight, _draw(matrix.weight, deviation, rules[side].matrices, generator)


def _biases(
    model: Transformer, rules: Mapping[str, Rules], generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Those of the feed-forward sublayers of a stack whose rules draw them."""
    stacks = (getattr(model, side) for side in rules if rules[side].biases == "uniform")
    blocks = (part for stack in stacks for part in stack.modules() if isinstance(part, FeedForward))
    for linear in (linear for block in blocks for linear in (block.inner, block.outer)):
        if linear.bias is not None:
            deviation = 1 / math.sqrt(3 * linear.in_features)
            yield linear.bias, _draw(linear.bias, deviation, "uniform", generator)


def _constants(model: Transformer) -> Iterator[tuple[Tensor, Tensor]]:
    """Norms (1, 0), biases 0, and the constants that modules define."""
    for module in model.modules():
        if callable(constants := getattr(module, "init_constants", None)):
            yield from constants()
        if isinstance(module, Norm):
            yield module.weight, torch.ones(module.weight.shape)
        if isinstance(module, nn.LayerNorm | nn.Linear) and module.bias is not None:
            yield module.bias, torch.zeros(module.bias.shape)
