"""Firefox's engine reads our file and translates as our model that is rounded in the same way."""

from __future__ import annotations

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
from nmtdeep.text.vocabulary import shared_or_separate
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


@pytest.fixture(scope="module")
def plain() -> tuple[Recipe, TextPipeline, Transformer]:
    settings = recipe()
    text = pipeline(settings)
    return settings, text, trained(settings, text)


KINDS: tuple[dict[str, Any], ...] = (
    {"model__encoder__residual": "deep_norm", "model__decoder__residual": "deep_norm"},
    {"text__vocabulary": {"sharing": "separate"}, "model__embeddings__sharing": "decoder"},
    {"model__biases": "inner", "model__embeddings__output_bias": False},
)


@pytest.mark.parametrize(
    "changes", [{}, *(pytest.param(each, marks=pytest.mark.slow) for each in KINDS)], ids=str
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
    items = [*to_firefox.items(model, settings.model, sides, factors)]
    [bias] = [np.frombuffer(i.data, np.float32) for i in items if i.name.endswith("logit_out_b")]
    never = [text.target.model.all_pieces[place] for place in np.flatnonzero(bias < -1e8)]
    assert never == ["<unk>", "<s>"]
    models = [to_firefox.sentencepiece_of(side).content for side in sides]
    engine = fxtranslate.Translator(to_firefox.pack(items), *models)
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
