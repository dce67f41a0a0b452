"""Combinations of slots that conflict are rejected with the reason; others are accepted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from nmtdeep.config.recipe import Recipe

ENCODER, DECODER = "encoder", "decoder"
CONFLICTS: list[tuple[dict[str, Any], str]] = [
    (
        {ENCODER: {"combination": "hyper_connections", "residual": "post_norm"}},
        "hyper_connections works only with residual: pre_norm or no_norm, not post_norm: "
        "set model.encoder.residual: pre_norm",
    ),
    (
        {DECODER: {"combination": "attention_residuals", "residual": "rezero"}},
        "attention_residuals works only with residual: pre_norm or no_norm, not rezero",
    ),
    (
        {"initializer": "admin", ENCODER: {"residual": "admin"}},
        "initializer: admin sets omegas, which decoder.residual: pre_norm does not have",
    ),
    (
        {DECODER: {"sublayers": ["self_attention", "feed_forward"]}},
        "none of them attends to the source: add cross_attention",
    ),
    (
        {DECODER: {"sublayers": ["average_attention", "feed_forward"]}},
        "none of them attends to the source",
    ),
    (
        {DECODER: {"sublayers": ["merged_attention", "cross_attention"]}},
        "merged_attention attends to the source already: leave out cross_attention",
    ),
    (
        {DECODER: {"sublayers": ["self_attention", "cross_attention", "self_attention"]}},
        "self_attention is listed twice, and only feed_forward can be repeated",
    ),
    (
        {ENCODER: {"combination": {"type": "dlcl", "weights": "scalar_n"}}},
        "scalar_n, and only scalar_n, needs groups",
    ),
    (
        {ENCODER: {"combination": {"type": "dlcl", "groups": 4}}},
        "weights: scalar with groups: 4",
    ),
    (
        {ENCODER: {"combination": {"type": "dlcl", "weights": "scalar_n", "groups": 7}}},
        "width 512 is not a multiple of encoder.combination.groups 7",
    ),
    (
        {ENCODER: {"combination": {"type": "sparse_blocks", "blocks": [0, 3]}}},
        "blocks end at 3, but encoder.depth is 6: end with the depth",
    ),
    (
        {DECODER: {"combination": {"type": "sparse_blocks", "blocks": [0, 4, 3, 6]}}},
        "do not rise from 0",
    ),
    ({DECODER: {"combination": {"type": "sparse_blocks", "blocks": [2, 6]}}}, "do not rise from 0"),
    ({"width": 512, ENCODER: {"width": 1023, "heads": 3}}, "width 1023 is odd"),
    (
        {ENCODER: {"width": 1024, "heads": 12}},
        "width 1024 is not a multiple of encoder.heads 12",
    ),
    (
        {ENCODER: {"width": 1024}},
        "encoder (1024) and decoder (512) differ in width and cannot share embeddings: "
        "set model.embeddings.sharing: decoder",
    ),
    (
        {DECODER: {"width": 256}, "embeddings": {"sharing": "none", "bias": True}},
        "encoder (512) and decoder (256) differ in width and cannot share the bias of embeddings: "
        "set model.embeddings.bias: false",
    ),
    (
        {
            ENCODER: {"width": 1024},
            DECODER: {"sublayers": ["merged_attention", "feed_forward"]},
            "embeddings": {"sharing": "decoder"},
        },
        "cannot share values in merged_attention: set model.bridge: projection",
    ),
    ({"width": 511, ENCODER: {"heads": 7}, DECODER: {"heads": 7}}, "sinusoidal positions need"),
]


@pytest.mark.parametrize(("model", "message"), CONFLICTS, ids=[reason for _, reason in CONFLICTS])
def test_a_conflict_is_rejected_with_the_reason(model: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Recipe.model_validate({"model": model})


@pytest.mark.parametrize(
    "model",
    [
        {"bridge": "transparent", ENCODER: {"combination": "dlcl"}},
        {DECODER: {"combination": "mhc", "residual": "no_norm"}},
        {"initializer": "admin", ENCODER: {"residual": "admin"}, DECODER: {"residual": "admin"}},
        {ENCODER: {"combination": {"type": "sparse_blocks", "blocks": 100}}},
        {ENCODER: {"width": 256}, DECODER: {"width": 256}},
        {
            ENCODER: {"width": 1024},
            "bridge": "projection",
            "embeddings": {"sharing": "decoder"},
            DECODER: {"sublayers": ["merged_attention", "feed_forward"]},
        },
        {ENCODER: {"combination": {"type": "sparse_blocks", "blocks": [0, 1, 6]}}},
        {DECODER: {"sublayers": ["feed_forward", "merged_attention", "feed_forward"]}},
        {
            "positions": {"type": "relative", "sinusoids": False},
            DECODER: {"sublayers": ["merged_attention", "feed_forward"]},
        },
    ],
    ids=str,
)
def test_other_combinations_are_accepted(model: dict[str, Any]) -> None:
    assert Recipe.model_validate({"model": model}).model
