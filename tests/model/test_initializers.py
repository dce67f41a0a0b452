"""Every initializer on a model that has all kinds of sublayers: measured values == the formula."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nmtdeep.model.build import build, initialize
from nmtdeep.model.initialization import Sample
from nmtdeep.model.layers.attention import CrossAttention
from nmtdeep.model.layers.context import Context
from nmtdeep.model.transformer import Transformer

D, F, TYPES, DEPTH, HEADS, CLIP = 64, 96, 400, 3, 2, 4
JOINT, SQUARE = 6 / (D + 3 * D), 6 / (D + D)
INNER, GATE, RELATIVE = 6 / (D + F), 6 / (4 * D), 6 / (2 * CLIP + 1 + D // HEADS)
# Squares of Glorot's bounds, by name of the parameter within its layer and by rows of it.
GLOROT = {
    r"(qkv|query|key_value)\.weight": JOINT,
    r"output\.weight": SQUARE,
    r"(inner|outer)\.weight": INNER,
    r"gate\.weight": GATE,
    r"relative\.keys": RELATIVE,
}
# Which of the three (or two) blocks of rows are values; None: none is.
VALUES = {"qkv": 2, "key_value": 1}


@pytest.fixture
def made(tiny_config: Callable) -> Callable[..., tuple[Transformer, object]]:
    def make(initializer: object, residual: str = "post_norm") -> tuple[Transformer, object]:
        described = tiny_config(
            width=D,
            feed_forward=F,
            depth=DEPTH,
            encoder=residual,
            decoder=residual,
            sublayers=(
                {"type": "average_attention", "feed_forward": True},
                "merged_attention",
                "self_attention",
                "feed_forward",
            ),
            combinations=("dlcl", "sparse_blocks"),
            positions={"type": "relative", "clip": CLIP},
            sharing="none",
            bias=True,
            initializer=initializer,
        )
        model = build(described, source_types=TYPES, target_types=TYPES)
        for parameter in model.parameters():
            nn.init.constant_(parameter, math.nan)
        return model, described

    return make


def blocks(model: Transformer) -> list[tuple[str, int, str, str, Tensor]]:
    """Side, layer from 1, Glorot's key, what it is for, values; joint matrices in parts."""
    found = []
    for name, parameter in model.named_parameters():
        match = re.match(r"(encoder|decoder)\.layers\.(\d+)\.sublayers\.\d+\.(.*)", name)
        if not match or match[3].endswith("bias") or not match[3].startswith("sublayer."):
            continue
        key = next(key for key in GLOROT if re.search(rf"\.{key}$", match[3]))
        last = match[3].rpartition(".weight")[0].rpartition(".")[2]
        parts = parameter.detach().double().split(D) if key.startswith("(qkv") else [parameter]
        for number, part in enumerate(parts):
            kind = "value" if VALUES.get(last) == number else last
            found.append((match[1], int(match[2]) + 1, key, kind, part.detach().double()))
    return found


def check(values: Tensor, variance: float, *, normal: bool = False) -> None:
    """Variance within five deviations of what so many draws show, and a uniform law's bound."""
    spread = 2.0 if normal else 0.8
    measured = float(values.square().mean())
    assert measured == pytest.approx(variance, rel=5 * math.sqrt(spread / values.numel()))
    bound = math.sqrt(3 * variance)
    largest = float(values.abs().max())
    if normal:
        assert largest > 1.1 * bound
    else:
        assert 0.9 * bound < largest <= bound * (1 + 1e-6)


def test_lipschitz_bounds_are_one_over_the_root_of_the_inputs(made: Callable) -> None:
    model, described = made({"type": "lipschitz", "scale": 0.5})
    initialize(model, described, seed=1)
    inputs = {r"(inner|outer)\.weight": {"inner": D, "outer": F}}
    for _, _, key, kind, values in blocks(model):
        fan_in = inputs.get(key, {}).get(kind, values.shape[1])
        check(values, 0.25 / fan_in / 3)
    for table in (model.source_embedding.weight, model.target_embedding.weight):
        check(table.detach().double()[1:], 0.25 * 2 / (TYPES + D) / 3)


def test_lipschitz_matrices_with_normal_embeddings(made: Callable) -> None:
    chosen = {"type": "lipschitz", "scale": 0.5, "embeddings": "normal"}
    model, described = made(chosen)
    initialize(model, described, seed=1)
    inputs = {r"(inner|outer)\.weight": {"inner": D, "outer": F}}
    for _, _, key, kind, values in blocks(model):
        check(values, 0.25 / inputs.get(key, {}).get(kind, values.shape[1]) / 3)
    for table in (model.source_embedding.weight, model.target_embedding.weight):
        check(table.detach().double()[1:], 1 / D, normal=True)
        assert not table[0].any(), "the padding row stays zero"


def test_lipschitz_without_the_key_has_the_papers_embeddings(made: Callable) -> None:
    _, old = made({"type": "lipschitz"})
    _, new = made({"type": "lipschitz", "scale": 1.0, "embeddings": "lipschitz"})
    assert old == new


@pytest.mark.parametrize("cross_attention", ["joint", "separate"])
@pytest.mark.parametrize("exponent", [0.5, 0.25])
def test_depth_scaled_bounds_fall_with_the_layer(
    made: Callable, exponent: float, cross_attention: str
) -> None:
    chosen = {"type": "depth_scaled", "alpha": 0.8, "exponent": exponent}
    model, described = made({**chosen, "cross_attention": cross_attention})
    initialize(model, described, seed=1)
    for _, layer, key, _, values in blocks(model):
        square = GLOROT[key]
        if key.startswith("(qkv") and values.shape == (D, D) and cross_attention == "separate":
            square = SQUARE if is_across(model, values) else JOINT
        check(values, square / 3 * 0.64 / layer ** (2 * exponent))
    check(model.target_embedding.weight.detach()[1:], 1 / D, normal=True)


def is_across(model: Transformer, values: Tensor) -> bool:
    """Whether these are rows of a projection of cross-attention."""
    parts = (one for module in model.modules() for one in projections_of(module))
    return any(torch.equal(values.float(), rows) for part in parts for rows in part.split(D))


def projections_of(module: nn.Module) -> list[Tensor]:
    cross = isinstance(module, CrossAttention)
    return [module.query.weight, module.key_value.weight] if cross else []


def test_glorot_embeddings(made: Callable) -> None:
    model, described = made({"type": "glorot", "embeddings": "glorot"})
    initialize(model, described, seed=1)
    check(model.source_embedding.weight.detach()[1:], 2 / (TYPES + D))


def test_deep_norm_scales_values_outputs_and_feed_forward_maps(made: Callable) -> None:
    model, described = made("deep_norm", "deep_norm")
    initialize(model, described, seed=1)
    beta = {
        "encoder": 0.87 * (DEPTH**4 * DEPTH) ** (-1 / 16),
        "decoder": (12 * DEPTH) ** (-1 / 4),
    }
    for side, _, key, kind, values in blocks(model):
        if kind in ("qkv", "query", "key_value"):
            check(values, 1 / D, normal=True)
        else:
            square = SQUARE if kind == "value" else GLOROT[key]
            check(values, beta[side] ** 2 * square / 3, normal=True)


def test_t_fixup_scales_all_but_queries_and_keys(made: Callable) -> None:
    model, described = made("t_fixup", "no_norm")
    initialize(model, described, seed=1)
    scales = {"encoder": 0.67 * DEPTH ** (-1 / 4), "decoder": (9 * DEPTH) ** (-1 / 4)}
    for side, _, key, kind, values in blocks(model):
        if kind in ("qkv", "query", "key_value", "") or key == r"relative\.keys":
            check(values, GLOROT[key] / 3)
        else:
            square = SQUARE if kind == "value" else GLOROT[key]
            check(values, scales[side] ** 2 * square / 3)
    check(model.source_embedding.weight.detach()[1:], scales["decoder"] ** 2 / D, normal=True)


SOURCE = torch.randint(3, TYPES, (6, 9), generator=torch.Generator().manual_seed(0))
TARGET = torch.randint(3, TYPES, (6, 7), generator=torch.Generator().manual_seed(1))


def test_admins_omegas_are_the_roots_of_summed_variances(tiny_config: Callable) -> None:
    described = tiny_config(
        width=D, feed_forward=F, encoder="admin", decoder="admin", initializer="admin", dropout=0.3
    )
    model = build(described, source_types=TYPES, target_types=TYPES)
    padded = torch.cat((SOURCE, torch.zeros(6, 4, dtype=torch.long)), dim=1)
    initialize(model, described, seed=1, sample=Sample(padded, TARGET))
    omegas = [
        [wrapper.omega.unique().item() for layer in stack for wrapper in layer]
        for stack in (model.encoder, model.decoder)
    ]
    # By hand: the same weights with omega 1, sublayer after sublayer.
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            for layer in stack:
                for wrapper in layer:
                    wrapper.omega.fill_(1.0)
        model.eval()
        encoded = model.encode(SOURCE)
        x, total, expected = model.source_embedding(SOURCE), 1.0, []
        for wrapper in (one for layer in model.encoder for one in layer):
            expected.append(math.sqrt(total))
            out = wrapper.sublayer(x, Context(mask=encoded.mask))
            total += float(out.var())
            x = wrapper.norm(x + out)
        assert omegas[0] == pytest.approx(expected, rel=1e-4)
        x, total, expected = model.target_embedding(TARGET), 1.0, []
        for layer, context in zip(model.decoder, encoded.contexts(), strict=True):
            for wrapper in layer:
                expected.append(math.sqrt(total))
                out = wrapper.sublayer(x, context)
                total += float(out.var())
                x = wrapper.norm(x + out)
        assert omegas[1] == pytest.approx(expected, rel=1e-4)
    assert omegas[0][0] == 1.0
    assert omegas[0] == sorted(omegas[0])


def test_admin_without_a_sample_is_refused(tiny_config: Callable) -> None:
    described = tiny_config(encoder="admin", decoder="admin", initializer="admin")
    model = build(described, source_types=9, target_types=9)
    with pytest.raises(ValueError, match="needs a sample"):
        initialize(model, described, seed=1)


@pytest.mark.parametrize(
    ("initializer", "alive"),
    [
        ("glorot", False),
        ({"type": "depth_scaled", "exponent": 0.25}, True),
        ("depth_scaled", True),
        ("lipschitz", True),
    ],
    ids=str,
)
def test_gradients_reach_the_bottom_of_30_post_norm_layers(
    tiny_config: Callable, initializer: object, alive: bool
) -> None:
    # Zhang et al. 2019, Figure 1: without help they vanish, in the decoder above all.
    described = tiny_config(
        width=D,
        feed_forward=2 * D,
        depth=30,
        encoder="post_norm",
        decoder="post_norm",
        initializer=initializer,
    )
    model = build(described, source_types=TYPES, target_types=TYPES)
    initialize(model, described, seed=1)
    log_probs = model.output(model(SOURCE, TARGET)).log_softmax(dim=2)
    log_probs.gather(2, TARGET[..., None]).sum().backward()
    norms = [
        torch.nn.utils.get_total_norm([one.grad for one in layer.parameters()]).item()
        for layer in model.decoder
    ]
    assert (norms[0] > 0.1 * norms[-1]) == alive
    assert (norms[0] < 0.01 * norms[-1]) != alive
