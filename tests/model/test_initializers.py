"""Every initializer on a model with all types of sublayers: measured values == the formula."""

import math
import re
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from nmtdeep.config.model import Model
from nmtdeep.errors import UserError
from nmtdeep.model.build import build, initialize
from nmtdeep.model.initialization import Sample
from nmtdeep.model.layers.attention import CrossAttention
from nmtdeep.model.layers.sublayer import Context

D, F, TYPES, DEPTH, HEADS, CLIP = 64, 96, 400, 3, 2, 4
JOINT, SQUARE = 6 / (D + 3 * D), 6 / (D + D)
# Squares of Glorot's bounds, by the parameter's name within its layer.
GLOROT = {
    r"(qkv|query|key_value)\.weight": JOINT,
    r"output\.weight": SQUARE,
    r"(inner|outer)\.weight": 6 / (D + F),
    r"gate\.weight": 6 / (4 * D),
    r"relative\.keys": 6 / (2 * CLIP + 1 + D // HEADS),
}
# The block of rows, of three or two, that holds the values.
VALUES = {"qkv": 2, "key_value": 1}
DEEP_NORM = {"encoder": 0.87 * DEPTH ** (-5 / 16), "decoder": (12 * DEPTH) ** (-1 / 4)}
T_FIXUP = {"encoder": 0.67 * DEPTH ** (-1 / 4), "decoder": (9 * DEPTH) ** (-1 / 4)}


class Block(NamedTuple):
    """A matrix, or the rows of one that have a role of their own.

    Attributes:
        layer: counts from 1.
        square: of Glorot's bound.
        role: the parameter's name, or "value".
        across: whether it belongs to cross-attention.
    """

    side: str
    layer: int
    square: float
    role: str
    across: bool
    values: Tensor

    @property
    def compared(self):
        """Whether it makes queries or keys, which are compared."""
        return self.role in ("qkv", "query", "key_value")

    @property
    def apart(self):
        """The square of Glorot's bound if values count as a matrix of their own."""
        return SQUARE if self.role == "value" else self.square


@pytest.fixture
def made(tiny_config):
    def make(initializer, residual="post_norm"):
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


def blocks(model):
    for name, parameter in model.named_parameters():
        match = re.match(r"(encoder|decoder)\.layers\.(\d+)\.sublayers\.\d+\.(sublayer\..*)", name)
        if not match or match[3].endswith("bias"):
            continue
        key = next(key for key in GLOROT if re.search(rf"\.{key}$", match[3]))
        last = name.split(".")[-2]
        across = isinstance(model.get_submodule(name.rsplit(".", 2)[0]), CrossAttention)
        values = parameter.detach().double()
        for number, part in enumerate(values.split(D) if key.startswith("(qkv") else [values]):
            role = "value" if VALUES.get(last) == number else last
            yield Block(match[1], int(match[2]) + 1, GLOROT[key], role, across, part)


def check(values, variance, law):
    """Variance within five deviations of what so many draws show, and a uniform law's bound."""
    values = values.detach().double()
    spread = 2.0 if law == "normal" else 0.8
    measured = float(values.square().mean())
    assert measured == pytest.approx(variance, rel=5 * math.sqrt(spread / values.numel()))
    assert abs(float(values.mean())) < 5 * math.sqrt(variance / values.numel())
    bound = math.sqrt(3 * variance)
    largest = float(values.abs().max())
    if law == "normal":
        assert largest > 1.1 * bound
    else:
        assert 0.9 * bound < largest <= bound * (1 + 1e-6)


def depth_scaled(exponent, separate):
    chosen = {"type": "depth_scaled", "alpha": 0.8, "exponent": exponent}
    chosen["cross_attention"] = "separate" if separate else "joint"

    def variance(block):
        square = SQUARE if separate and block.across and block.square == JOINT else block.square
        return square / 3 * 0.64 / block.layer ** (2 * exponent)

    return chosen, "post_norm", variance, "uniform", (1 / D, "normal")


def deep_norm(block):
    if block.role == "relative":  # added to keys
        return block.square / 3
    return 1 / D if block.compared else DEEP_NORM[block.side] ** 2 * block.apart / 3


def t_fixup(block):
    if block.compared or block.role == "relative":
        return block.square / 3
    return T_FIXUP[block.side] ** 2 * block.apart / 3


# Initializer, residual, variance of each matrix and its law, variance of the tables and their law.
CASES = {
    "glorot": ("glorot", "post_norm", lambda block: block.square / 3, "uniform", (1 / D, "normal")),
    "gain": (
        {"type": "glorot", "gain": 0.5, "embeddings": "glorot"},
        "post_norm",
        lambda block: 0.25 * block.square / 3,
        "uniform",
        (2 / (TYPES + D), "uniform"),
    ),
    "lipschitz": (
        {"type": "lipschitz", "scale": 0.5},
        "post_norm",
        lambda block: 0.25 / block.values.shape[1] / 3,
        "uniform",
        (0.25 * 2 / (TYPES + D) / 3, "uniform"),
    ),
    "depth-scaled": depth_scaled(0.5, False),
    "depth-scaled, release": depth_scaled(0.25, True),
    "deep_norm": ("deep_norm", "deep_norm", deep_norm, "normal", (1 / D, "normal")),
    "t_fixup": ("t_fixup", "no_norm", t_fixup, "uniform", (T_FIXUP["decoder"] ** 2 / D, "normal")),
}
# Of an output matrix that is no embedding, where that is not the tables'.
OUTPUT = {"lipschitz": (0.25 / D / 3, "uniform"), "t_fixup": (1 / D, "normal")}


@pytest.mark.parametrize(
    ("initializer", "residual", "variance", "law", "tables"), CASES.values(), ids=CASES
)
def test_matrices_and_tables_have_the_variance_of_the_formula(
    made, initializer, residual, variance, law, tables
):
    model, described = made(initializer, residual)
    initialize(model, described, seed=1)
    for block in blocks(model):
        check(block.values, variance(block), law)
    output = OUTPUT.get(described.initializer.type, tables)
    parts = {model.source_embedding: tables, model.target_embedding: tables, model.output: output}
    for part, expected in parts.items():
        check(part.weight[1:], *expected)
        assert not part.weight[0].any(), "the padding row stays zero"


def test_each_stack_can_have_an_initializer_of_its_own(made):
    model, described = made({"type": "glorot", "embeddings": "glorot"})
    described = with_initializer(described, "encoder", {"type": "depth_scaled", "exponent": 0.25})
    lipschitz = {"type": "lipschitz", "embeddings": "normal"}
    initialize(model, with_initializer(described, "decoder", lipschitz), seed=1)
    for block in blocks(model):
        scaled = block.square / 3 / block.layer**0.5
        fan_in = 1 / block.values.shape[1] / 3
        check(block.values, scaled if block.side == "encoder" else fan_in, "uniform")
    check(model.source_embedding.weight[1:], 2 / (TYPES + D), "uniform")


def with_initializer(described, side, chosen):
    """The model with an initializer for one stack."""
    values = described.model_dump()
    values[side]["initializer"] = chosen
    return Model.model_validate(values)


def test_other_parameters_are_constants(made):
    model, described = made("glorot")
    initialize(model, described, seed=1)
    check(model.source_embedding.bias, 1 / D, "uniform")
    for name, parameter in model.named_parameters():
        if re.search(r"norms?(\.\d+)?\.weight$", name):
            assert (parameter == 1).all(), name
        elif name.endswith(".bias") and not name.startswith("source_embedding"):
            assert not parameter.any(), name
        assert parameter.isfinite().all(), name


def test_a_parameter_that_no_rule_covers_is_named(made):
    model, described = made("glorot")
    model.decoder.layers[1].stray = nn.Parameter(torch.zeros(3))
    model.bridge.mixture = nn.Parameter(torch.zeros(3))
    names = re.escape("bridge.mixture, decoder.layers.1.stray")
    with pytest.raises(UserError, match=f"parameters {names}: "):
        initialize(model, described, seed=1)


def test_the_seed_alone_determines_the_values(made):
    model, described = made("glorot")

    def drawn(seed):
        initialize(model, described, seed=seed)
        return nn.utils.parameters_to_vector(model.parameters())

    torch.manual_seed(1)
    first, state = drawn(3), torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(first, drawn(3)) and not torch.equal(first, drawn(4))
    assert torch.equal(torch.manual_seed(1).get_state(), state)


SOURCE = torch.randint(3, TYPES, (6, 9), generator=torch.Generator().manual_seed(0))
TARGET = torch.randint(3, TYPES, (6, 7), generator=torch.Generator().manual_seed(1))


def test_admins_omegas_are_the_roots_of_summed_variances(tiny_config):
    described = tiny_config(
        width=D, feed_forward=F, encoder="admin", decoder="admin", initializer="admin", dropout=0.3
    )
    padded = torch.cat((SOURCE, torch.zeros(6, 4, dtype=torch.long)), dim=1)

    def initialized(config):
        model = build(config, source_types=TYPES, target_types=TYPES).eval()
        initialize(model, config, seed=1, sample=Sample(padded, TARGET))
        return model

    def omegas(stack):
        return [wrapper.omega.unique().item() for layer in stack for wrapper in layer]

    model = initialized(described)
    measured = [omegas(stack) for stack in (model.encoder, model.decoder)]
    # By hand: the same weights with omega 1, sublayer after sublayer.
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            for wrapper in (wrapper for layer in stack for wrapper in layer):
                wrapper.omega.fill_(1.0)
        encoded = model.encode(SOURCE)
        of_encoder = [Context(mask=encoded.mask)] * DEPTH
        for stack, embedded, contexts, found in (
            (model.encoder, model.source_embedding(SOURCE), of_encoder, measured[0]),
            (model.decoder, model.target_embedding(TARGET), encoded.contexts(), measured[1]),
        ):
            x, total, expected = embedded, 1.0, []
            for layer, context in zip(stack, contexts, strict=False):
                for wrapper in layer:
                    expected.append(math.sqrt(total))
                    out = wrapper.sublayer(x, context)
                    total += float(out.var())
                    x = wrapper.norm(x + out)
            assert found == pytest.approx(expected, rel=1e-4)
    assert measured[0][0] == 1.0
    values = described.model_dump()
    values["decoder"]["residual"], values["initializer"] = "post_norm", "glorot"
    alone = initialized(with_initializer(Model.model_validate(values), "encoder", "admin"))
    assert omegas(alone.encoder) == pytest.approx(measured[0]), "Admin in the encoder alone"


def test_feed_forward_maps_start_as_those_of_torch(made):
    """torch.nn.Linear's documented start: weight and bias U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    gain = 0.25
    plain, described = made({"type": "glorot", "gain": gain})
    initialize(plain, described, seed=1)
    model, described = made({"type": "glorot", "gain": gain, "feed_forward": "linear"})
    initialize(model, described, seed=1)
    old = dict(plain.named_parameters())
    maps = [name for name in old if re.search(r"\.(inner|outer)\.", name)]
    assert len(maps) >= 8 * DEPTH  # two maps with two parameters in each layer of both stacks
    for name, parameter in model.named_parameters():
        if name not in maps:
            assert parameter.equal(old[name]), name  # drawn as without it
            continue
        bound = (F if "outer" in name else D) ** -0.5
        bound *= gain if name.endswith("weight") else 1
        assert 0.9 * bound < parameter.abs().max() <= bound
        assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.25)
        assert name.endswith("weight") or not old[name].any()


WIDE = 160
# Of a matrix from the encoder's width to the decoder's: keys, values, and the bridge's.
FROM_WIDE: dict[str, tuple[object, float, float, float]] = {
    "glorot": ("glorot", *[2 / (WIDE + 3 * D)] * 2, 2 / (WIDE + D)),
    "separate": ({"type": "glorot", "cross_attention": "separate"}, *[2 / (WIDE + D)] * 3),
    "lipschitz": ("lipschitz", *[1 / WIDE / 3] * 3),
    "deep_norm": (
        "deep_norm",
        2 / (WIDE + D),
        DEEP_NORM["decoder"] ** 2 * 2 / (WIDE + D),
        2 / (WIDE + D),
    ),
    "t_fixup": (
        "t_fixup",
        2 / (WIDE + 3 * D),
        T_FIXUP["decoder"] ** 2 * 2 / (WIDE + D),
        2 / (WIDE + D),
    ),
    # Layer 2 of the decoder, and the bridge as if in layer 1.
    "depth_scaled": ("depth_scaled", *[2 / (WIDE + 3 * D) / 2] * 2, 2 / (WIDE + D)),
}


@pytest.mark.parametrize(
    ("initializer", "key", "value", "bridge"), FROM_WIDE.values(), ids=FROM_WIDE
)
def test_maps_from_another_width(tiny_config, initializer, key, value, bridge):
    law = "normal" if initializer == "deep_norm" else "uniform"

    def made(**choice):
        choice |= {"width": D, "widths": (WIDE, None), "sharing": "none", "depth": DEPTH}
        described = tiny_config(initializer=initializer, **choice)
        model = build(described, source_types=TYPES, target_types=TYPES)
        initialize(model, described, seed=1)
        return model

    keys, values = made().decoder.layers[1].sublayers[1].sublayer.key_value.weight.split(D)
    check(keys, key, law)
    check(values, value, law)
    check(made(bridge="projection").bridge.projection.weight, bridge, law)
