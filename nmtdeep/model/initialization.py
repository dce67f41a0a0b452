"""Initializers: functions that set the values of a finished model.

Each is a rule for the standard deviation of every matrix, by its role and its position. All share
one walk over the model, by structure and never by parameter names, which fails with the names of
the parameters that no rule covers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.model.layers.context import Sublayer
from nmtdeep.model.layers.parameters import HasConstants, Matrix
from nmtdeep.model.layers.residual import Admin, deep_norm_scales
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


# A deviation, of the matrix, its stack, and its layer there, which counts from 1.
MatrixRule = Callable[[Matrix, Side, int], float]
TableRule = Callable[[Tensor], float]
Law = Literal["uniform", "normal"]
CrossAttentionFans = Literal["joint", "separate"]


def glorot(
    model: Transformer,
    *,
    gain: float = 1.0,
    embeddings: Literal["normal", "glorot"] = "normal",
    cross_attention: CrossAttentionFans = "joint",
    seed: int = 0,
) -> None:
    """Glorot uniform: W ~ U(-b, b), b = gain sqrt(6 / (fan_in + fan_out)); E ~ N(0, 1/d).

    Query, key and value count as one d x 3d matrix, so their bound is gain sqrt(6 / 4d), in
    cross-attention too (fairseq, and the release of Wang et al. 2019), or there, if these are
    "separate", as three d x d matrices (the release of Zhang et al. 2019). Biases 0, norms (1, 0),
    the padding row 0; the embedding bias U(-sqrt(3/d), sqrt(3/d)) (that release again).
    `embeddings="glorot"`: E ~ U(-e, e), e = sqrt(6 / (V + d)), the baseline of Xu et al. 2020.

    Raises:
        ValueError: if no rule covers a parameter of the model.
    """
    normal = embeddings == "normal"
    _fill(
        model,
        lambda matrix, side, layer: gain * glorot_deviation(matrix, cross_attention),
        _width_deviation if normal else _glorot_table_deviation,
        tables="normal" if normal else "uniform",
        seed=seed,
    )


def lipschitz(
    model: Transformer,
    *,
    scale: float = 1.0,
    embeddings: Literal["lipschitz", "normal"] = "lipschitz",
    seed: int = 0,
) -> None:
    """W ~ U(-l, l), l = sqrt(1 / isize); E ~ U(-e, e), e = sqrt(2 / (esize + vsize)).

    Xu et al. 2020, section 4 and the release: isize is the matrix's input dimension, so the second
    feed-forward map has the bound 1 / sqrt(f). Biases 0, norms (1, 0), the padding row 0. `scale`
    multiplies l and e. `embeddings="normal"`: E ~ N(0, 1/d), as with `glorot`.

    Raises:
        ValueError: as `glorot`.
    """
    normal = embeddings == "normal"
    _fill(
        model,
        lambda matrix, side, layer: scale * math.sqrt(1 / (3 * matrix.fan_in)),
        _width_deviation if normal else lambda table: scale * math.sqrt(2 / (3 * sum(table.shape))),
        tables="normal" if normal else "uniform",
        seed=seed,
    )


def depth_scaled(
    model: Transformer,
    *,
    alpha: float = 1.0,
    exponent: float = 0.5,
    cross_attention: CrossAttentionFans = "joint",
    seed: int = 0,
) -> None:
    """W ~ U(-gamma alpha / sqrt(l), gamma alpha / sqrt(l)) in layer l (Zhang et al. 2019, Eq. 15).

    gamma is Glorot's bound, see `glorot`; l counts from 1 in the encoder and again in the decoder.
    The authors' release has l^(-1/4) instead of l^(-1/2), and so has their Table 1:
    `exponent=0.25`.

    Raises:
        ValueError: as `glorot`.
    """
    _fill(
        model,
        lambda matrix, side, layer: (
            glorot_deviation(matrix, cross_attention) * alpha / math.pow(layer, exponent)
        ),
        _width_deviation,
        seed=seed,
    )


def deep_norm(model: Transformer, *, seed: int = 0) -> None:
    """Glorot normal; value, output and feed-forward matrices with gain beta (Wang et al. 2022).

    Figure 2 there: beta of `deep_norm_scales`; queries and keys have gain 1.

    Raises:
        ValueError: as `glorot`.
    """
    scales = deep_norm_scales(len(model.encoder.layers), len(model.decoder.layers))

    def deviation(matrix: Matrix, side: Side, layer: int) -> float:
        if matrix.role in ("query", "key"):
            return math.sqrt(1 / matrix.fan_in)
        fan_out = matrix.fan_in if matrix.role == "value" else matrix.fan_out
        return scales[side == "decoder"].beta * math.sqrt(2 / (matrix.fan_in + fan_out))

    _fill(model, deviation, _width_deviation, matrices="normal", seed=seed)


def t_fixup(model: Transformer, *, seed: int = 0) -> None:
    """Glorot with depth's scale on values, outputs, feed-forward maps and embeddings.

    Huang et al. 2020, section 3.2, for N layers: 0.67 N^(-1/4) in the encoder, (9 N)^(-1/4) in the
    decoder and for the embeddings N(0, 1/d); a shared output matrix takes the embeddings' scale.
    Queries and keys stay at Glorot's bound of the joint matrix, values start from that of d x d.

    Raises:
        ValueError: as `glorot`.
    """
    encoder = 0.67 * len(model.encoder.layers) ** -0.25
    decoder = math.pow(9 * len(model.decoder.layers), -0.25)

    def deviation(matrix: Matrix, side: Side, layer: int) -> float:
        if matrix.role in ("query", "key", "relative"):
            return glorot_deviation(matrix)
        scale = encoder if side == "encoder" else decoder
        fan_out = matrix.fan_in if matrix.role == "value" else matrix.fan_out
        return scale * math.sqrt(2 / (matrix.fan_in + fan_out))

    _fill(model, deviation, lambda table: decoder * _width_deviation(table), seed=seed)


def admin(model: Transformer, sample: Sample | None, *, seed: int = 0) -> None:
    """Glorot, then omega_i = sqrt(1 + sum_{j < i} Var f_j) for the i-th sublayer of a stack.

    Liu et al. 2020, section 4.2: the variances of the sublayers' outputs are measured in one
    forward pass of `sample` with omega = 1 (plain post-norm) and without dropout; 1 is the variance
    of the first residual's input, with which the released code starts its sum.

    Raises:
        ValueError: as `glorot`, or without a sample.
    """
    if sample is None:
        raise ValueError("the initializer admin measures on real sentences and needs a sample")
    glorot(model, seed=seed)
    variances = _variances(model, sample)
    for stack in (model.encoder, model.decoder):
        total = 1.0
        for wrapper in (wrapper for layer in stack for wrapper in layer):
            if isinstance(wrapper, Admin):
                with torch.no_grad():
                    wrapper.omega.fill_(math.sqrt(total))
            total += variances[wrapper.sublayer]


def _variances(model: Transformer, sample: Sample) -> dict[Sublayer, float]:
    """Variance of each sublayer's output at the real positions of `sample`."""
    variances: dict[Sublayer, float] = {}
    handles = []
    for stack, ids in ((model.encoder, sample.source), (model.decoder, sample.target)):

        def note(module: Any, _: Any, output: Tensor, real: Tensor = ids != model.pad) -> None:
            variances[module] = float(output[real].var())

        wrappers = (wrapper for layer in stack for wrapper in layer)
        handles += [wrapper.sublayer.register_forward_hook(note) for wrapper in wrappers]
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(sample.source, sample.target)
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return variances


def glorot_deviation(matrix: Matrix, cross_attention: CrossAttentionFans = "joint") -> float:
    """sqrt(2 / (fan_in + fan_out)): the bound of a uniform law is sqrt(3) times that."""
    separate = matrix.across and cross_attention == "separate"
    return math.sqrt(2 / (matrix.fan_in + (matrix.fan_in if separate else matrix.fan_out)))


def _width_deviation(table: Tensor) -> float:
    return 1 / math.sqrt(table.shape[1])


def _glorot_table_deviation(table: Tensor) -> float:
    return math.sqrt(2 / sum(table.shape))


def _fill(
    model: Transformer,
    matrix_rule: MatrixRule,
    table_rule: TableRule,
    *,
    matrices: Law = "uniform",
    tables: Law = "normal",
    seed: int,
) -> None:
    """Draw every matrix and table with the deviation of its rule; all else is a constant."""
    generator = torch.Generator().manual_seed(seed)
    covered: Counter[int] = Counter()
    drawn = chain(
        _tables(model, table_rule, tables, generator),
        _matrices(model, matrix_rule, matrices, generator),
        _constants(model),
    )
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
        raise ValueError(f"no initializer covers the parameters {', '.join(missed)}")


def _storage(tensor: Tensor) -> int:
    """The same for a parameter and for rows of it."""
    return tensor.untyped_storage().data_ptr()


def _draw(like: Tensor, deviation: float, law: Law, generator: torch.Generator) -> Tensor:
    values = torch.empty(like.shape)
    if law == "normal":
        return values.normal_(0, deviation, generator=generator)
    bound = math.sqrt(3) * deviation
    return values.uniform_(-bound, bound, generator=generator)


def _tables(
    model: Transformer, rule: TableRule, law: Law, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Embeddings and output, a shared table once; and the embedding bias."""
    sides = (model.source_embedding, model.target_embedding)
    tables = {id(part.weight): part.weight for part in (*sides, model.output)}
    for table in tables.values():
        value = _draw(table, rule(table), law, generator)
        value[model.pad] = 0
        yield table, value
    bias = model.source_embedding.bias
    if bias is not None:
        yield bias, _draw(bias, bias.numel() ** -0.5, "uniform", generator)


def _matrices(
    model: Transformer, rule: MatrixRule, law: Law, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    sides: tuple[tuple[Side, Stack], ...] = (("encoder", model.encoder), ("decoder", model.decoder))
    for side, stack in sides:
        for number, layer in enumerate(stack, start=1):
            for wrapper in layer:
                for matrix in wrapper.sublayer.matrices():
                    deviation = rule(matrix, side, number)
                    yield matrix.weight, _draw(matrix.weight, deviation, law, generator)


def _constants(model: Transformer) -> Iterator[tuple[Tensor, Tensor]]:
    """Norms (1, 0), biases 0, and the constants that modules define."""
    for module in model.modules():
        if isinstance(module, HasConstants):
            yield from module.constants()
        if isinstance(module, nn.LayerNorm):
            yield module.weight, torch.ones(module.weight.shape)
        if isinstance(module, nn.LayerNorm | nn.Linear) and module.bias is not None:
            yield module.bias, torch.zeros(module.bias.shape)
