"""Firefox's engine reads our file and translates as our model that is rounded in the same way."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.model.build import build, initialize
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.rounding import factor
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.sentencepiece import learn
from nmtdeep.text.vocabulary import EOS, shared_or_separate
from nmtdeep.tools.export import to_firefox

from .models import update

WIDTH, INNER = 64, 128
LINES = [
    f"{who} {does} {what}."
    for who in ("A man", "Two girls", "The brown dog", "My friend")
    for does in ("sees", "holds", "likes very much", "paints")
    for what in ("a red car", "an apple", "the sea", "some old music", "two horses", "nothing")
]


def recipe(**changes: Any) -> Recipe:
    stack = {"depth": 2, "heads": 4, "feed_forward": INNER, "residual": "post_norm"}
    decoder = {"depth": 1, "sublayers": ["ssru", "cross_attention", "feed_forward"]}
    model = {
        "width": WIDTH,
        "encoder": stack,
        "decoder": stack | decoder,
        "embeddings": {"start": "zero", "output_bias": True},
        "norm_epsilon": 1e-6,
        "dropout": {"embedding": 0, "residual": 0},
    }
    text = {
        "tokenizer": {"type": "sentencepiece", "size": 120, "byte_fallback": False},
        "normalize": False,
    }
    for key, value in changes.items():
        section, *path = key.split("__")
        place: Any = {"model": model, "text": text}[section]
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = value
    return Recipe.model_validate({"model": model, "text": text})


def pipeline(settings: Recipe) -> TextPipeline:
    text: Any = settings.text
    pieces = learn(LINES, text.tokenizer, normalize=False)
    separate = text.vocabulary.sharing == "separate"
    target = learn(LINES[::2], text.tokenizer, normalize=False) if separate else pieces
    found = shared_or_separate({}, {}, text.vocabulary, (pieces.pieces, target.pieces))
    return TextPipeline.of(text, (pieces, target), found)


def trained(settings: Recipe, text: TextPipeline, updates: int = 80) -> Transformer:
    """A model that has begun to copy."""
    model = build(settings.model, **text.sizes)
    initialize(model, settings.model, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    random = np.random.default_rng(1)
    for _ in range(updates):
        chosen = [LINES[place] for place in random.integers(len(LINES), size=16)]
        sources, targets = (
            [side.encode(line) for line in chosen] for side in (text.source, text.target)
        )
        update(model, optimizer, sources, targets)
    return model.eval()


def read(content: bytes) -> dict[str, tuple[int, tuple[int, ...], bytes]]:
    """The arrays of a file: type, shape and data by name."""
    version, count = struct.unpack_from("<QQ", content)
    assert version == 1
    place = 16 + 32 * count
    heads = [struct.unpack_from("<QQQQ", content, 16 + 32 * number) for number in range(count)]
    names, shapes = [], []
    for length, *_ in heads:
        names.append(content[place : place + length].rstrip(b"\0").decode())
        place += length
    for _, _, dimensions, _ in heads:
        shapes.append(struct.unpack_from(f"<{dimensions}i", content, place))
        place += 4 * dimensions
    (gap,) = struct.unpack_from("<Q", content, place)
    place += 8 + gap
    assert place % 256 == 0
    found = {}
    for (_, kind, _, size), name, shape in zip(heads, names, shapes, strict=True):
        found[name] = kind, shape, content[place : place + size]
        place += size
    assert place == len(content)
    return found


def factors_of(model: Transformer) -> dict[torch.nn.Module, float]:
    return {module: 20.0 for module in model.modules() if isinstance(module, torch.nn.Linear)}


@pytest.fixture(scope="module")
def plain() -> tuple[Recipe, TextPipeline, Transformer]:
    settings = recipe()
    text = pipeline(settings)
    return settings, text, trained(settings, text)


def test_arrays_of_integers_are_transposed_weights_with_their_factor(plain) -> None:
    settings, text, model = plain
    sides = text.source, text.target
    items = to_firefox.items(model, settings.model, sides, factors_of(model))
    found = read(to_firefox.pack(list(items)))
    kind, shape, data = found["encoder_l2_self_Wk"]
    weight = model.encoder.layers[1].sublayers[0].sublayer.qkv.weight[WIDTH : 2 * WIDTH].detach()
    assert (kind, shape, len(data) % 256) == (0x4101, (WIDTH, WIDTH), 0)
    values = np.frombuffer(data, np.int8, WIDTH * WIDTH).reshape(WIDTH, WIDTH)
    (q,) = struct.unpack_from("<f", data, WIDTH * WIDTH)
    assert np.abs(values).max() == 127
    assert np.abs(values / q - weight.numpy()).max() <= 0.5 / q * 1.001
    assert struct.unpack("<f", found["encoder_l2_self_Wk_QuantMultA"][2]) == (20.0,)
    assert b"enc-depth: 2\n" in found["special:model.yml"][2]
    pieces = text.source.model.all_pieces
    table = np.frombuffer(found["Wemb"][2], np.int8, len(pieces) * WIDTH).reshape(-1, WIDTH)
    (q,) = struct.unpack_from("<f", found["Wemb"][2], table.size)
    for piece in ("</s>", "▁", pieces[-1]):
        id = EOS if piece == "</s>" else text.source.vocabulary.ids([piece])[0]
        row = model.source_embedding.weight[id].detach().numpy()
        assert np.abs(table[pieces.index(piece)] / q - row).max() <= 0.5 / q * 1.001
    bias = np.frombuffer(found["decoder_ff_logit_out_b"][2], np.float32)
    assert [pieces[place] for place in np.flatnonzero(bias < -1e8)] == ["<unk>", "<s>"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param(
            {"model__encoder__residual": "deep_norm", "model__decoder__residual": "deep_norm"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"text__vocabulary": {"sharing": "separate"}, "model__embeddings__sharing": "decoder"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"model__biases": "inner", "model__embeddings__output_bias": False},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_engine_translates_as_our_rounded_model(changes, plain, monkeypatch) -> None:
    fxtranslate = pytest.importorskip("fxtranslate")
    settings, text, model = plain
    if changes:
        settings = recipe(**changes)
        text = pipeline(settings)
        model = trained(settings, text, updates=200)
    assert to_firefox.unsupported(settings) == []
    to_firefox.clear_unused(model, text)
    factors = to_firefox.activation_factors(model, text, LINES[:40])
    sides = text.source, text.target
    content = to_firefox.pack([*to_firefox.items(model, settings.model, sides, factors)])
    models = [to_firefox.sentencepiece_of(side).content for side in sides]
    engine = fxtranslate.Translator(content, *models)
    theirs = [engine.translate(line) for line in LINES]
    to_firefox.round_by(model, factors)
    if "vnni" not in engine.backend():
        monkeypatch.setattr(Linear, "forward", saturating)
    try:
        ours = [each.text for each in to_firefox.greedy_translator(model, text).translate(LINES)]
    finally:
        for module in model.modules():
            if hasattr(module, "rounding"):
                module.rounding = None
    assert len({*ours}) > 5, "the model does look at its source"
    equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
    assert equal >= 0.95 * len(LINES), equal


def saturating(linear, x):
    """The product as AVX2 computes it: inputs from 0 to 254, sums of two products in 16 bits."""
    rounding = linear.rounding
    integers = (x.flatten(0, -2) * rounding.activation).round().clamp(-127, 127) + 127
    parts = []
    for weight in linear.weight.chunk(rounding.blocks):
        q = factor(weight)
        whole = (weight * q).round()
        pairs = (integers.view(len(integers), 1, -1, 2) * whole.view(1, len(whole), -1, 2)).sum(3)
        total = pairs.clamp(-(2**15), 2**15 - 1).sum(2) - 127 * whole.sum(1)
        parts.append(total / (rounding.activation * q))
    y = torch.cat(parts, 1) + (0 if linear.bias is None else linear.bias)
    y = y.view(*x.shape[:-1], -1)
    return y.relu() if linear.relu else y


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        ("model__encoder__residual", "pre_norm", "model.encoder.residual"),
        ("model__encoder__combination", "dlcl", "model.encoder.combination"),
        ("model__decoder__sublayers", ["merged_attention", "feed_forward"], "decoder.sublayers"),
        ("model__positions", "rotary", "model.positions"),
        ("model__positions", {"type": "sinusoidal", "first": 2}, "model.positions"),
        ("model__activation", "gelu", "model.activation"),
        ("model__embeddings__start", "eos", "model.embeddings.start"),
        ("model__embeddings__sharing", "none", "model.embeddings.sharing"),
        ("model__encoder__heads", 8, "model.decoder.heads"),
        ("model__norm_epsilon", 1e-3, "model.norm_epsilon"),
        ("text__tokenizer", "moses_bpe", "text.tokenizer"),
        ("text__tokenizer__byte_fallback", True, "text.tokenizer.byte_fallback"),
        ("text__lowercase", True, "text.lowercase"),
    ],
)
def test_what_the_engine_lacks_is_refused_with_the_key(key: str, value: Any, where: str) -> None:
    (problem,) = to_firefox.unsupported(recipe(**{key: value}))
    assert problem.where.endswith(where)
    assert problem.hint


def test_every_shipped_student_is_supported() -> None:
    from nmtdeep.config.load import resolve

    for name in ("student-tiny", "student-base", "student-deep"):
        assert to_firefox.unsupported(resolve(name).recipe) == []
