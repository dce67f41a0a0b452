"""Halves of methods and lossy growth: each warned of once."""

from typing import Any

import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.warnings import growth, warnings

RELATIVE = {"type": "relative", "sinusoids": False}
MATT = ["merged_attention", "feed_forward"]


def both(**values):
    return {"encoder": values, "decoder": values}


# A model, and where its warnings are with a piece of each.
CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "deep_norm with glorot": (
        both(residual="deep_norm"),
        [("encoder.residual", "lacks initializer"), ("decoder.residual", "deep_norm")],
    ),
    "deep_norm in one stack": (
        {"encoder": {"residual": "deep_norm", "initializer": "deep_norm"}},
        [],
    ),
    "its initializer in the other stack": (
        {
            "encoder": {"residual": "deep_norm"},
            "decoder": {"residual": "post_norm", "initializer": "deep_norm"},
        },
        [("encoder.residual", "lacks initializer"), ("decoder.initializer", "not post_norm")],
    ),
    "initializer deep_norm with pre_norm": (
        {"initializer": "deep_norm"},
        [("initializer", "not pre_norm"), ("initializer", "set model.decoder.residual")],
    ),
    "t_fixup with pre_norm": (
        {"initializer": "t_fixup", "decoder": {"residual": "no_norm"}},
        [("initializer", "not pre_norm")],
    ),
    "no_norm with glorot": (
        {"decoder": {"residual": "no_norm"}},
        [("decoder.residual", "lacks initializer: t_fixup")],
    ),
    "admin with glorot": (
        {"encoder": {"residual": "admin"}},
        [("encoder.residual", "omegas start at 1")],
    ),
    "no positions": (
        {"positions": RELATIVE, "decoder": {"sublayers": MATT}},
        [("positions.sinusoids", "no positions")],
    ),
    "rotary without self-attention": (
        {"positions": "rotary", "decoder": {"sublayers": MATT}},
        [("positions", "no positions")],
    ),
    "relative in self-attention": ({"positions": RELATIVE}, []),
}


@pytest.mark.parametrize(("model", "expected"), CASES.values(), ids=CASES)
def test_a_missing_half_is_named_once(model, expected):
    found = warnings(Recipe.model_validate({"model": model}))
    assert [problem.where for problem in found] == [f"model.{where}" for where, _ in expected]
    assert all(word in str(each) for each, (_, word) in zip(found, expected, strict=True))


def stages(encoder, *depths, **model):
    """A training in stages to these depths of the encoder."""
    ends = [{"encoder": depth, "updates": 1} for depth in depths]
    model["encoder"] = {**encoder, "depth": depths[-1]}
    return Recipe.model_validate({"model": model, "training": {"stages": ends}})


def blocks(size):
    return {"combination": {"type": "sparse_blocks", "blocks": size}}


@pytest.mark.parametrize(
    ("recipe", "pieces"),
    [
        (stages(blocks(3), 6, 9), []),
        (stages(blocks(4), 6, 9), ["from 6+6 to 9+6 layers ends a block elsewhere"]),
        (stages(blocks(4), 6, 6, 8, 9), ["from 6+6 to 8+6 layers"]),  # 8 ends a block of 9
        (stages(blocks([0, 6, 9]), 6, 9), []),
        (stages(blocks([0, 9]), 6, 9), ["weights of the old top row are lost"]),
        (stages(blocks(8), 6, 8), []),  # six layers without a whole block have one row
        (
            stages({"residual": "deep_norm", "initializer": "deep_norm"}, 6, 9),
            ["growing from 6+6 to 9+6 layers changes alpha of deep_norm"],
        ),
        (stages({}, 6, 9, decoder={"residual": "deep_norm", "initializer": "deep_norm"}), []),
    ],
)
def test_growth_that_changes_copied_layers_is_warned_of(recipe, pieces):
    found = [str(problem) for problem in warnings(recipe)]
    assert len(found) == len(pieces)
    assert all(piece in line for piece, line in zip(pieces, found, strict=True))


def test_an_encoders_alpha_changes_with_the_decoders_depth():
    deep = {"residual": "deep_norm"}
    old, new = (
        Recipe.model_validate({"model": {"encoder": deep, "decoder": {"depth": depth}}}).model
        for depth in (6, 7)
    )
    (problem,) = growth(old, new)
    assert problem.where == "model.encoder.residual"
