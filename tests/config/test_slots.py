"""Combinations of slots that conflict are rejected with the reason; others are accepted."""

from typing import Any

import pytest
from pydantic import ValidationError

from nmtdeep.config.recipe import Recipe

ENCODER, DECODER = "encoder", "decoder"
DLCL, BLOCKS = {"type": "dlcl"}, {"type": "sparse_blocks"}
MERGED = {"sublayers": ["merged_attention", "feed_forward"]}
# A model, the key that its error points at, and a piece of the reason.
CONFLICTS: list[tuple[dict[str, Any], str, str]] = [
    ({ENCODER: {"combination": "mhc", "residual": "rezero"}}, "encoder.combination", "pre_norm"),
    ({"initializer": "admin", ENCODER: {"residual": "admin"}}, "initializer", "omegas"),
    ({DECODER: {"sublayers": ["self_attention"]}}, "decoder.sublayers", "none of them attends"),
    (
        {DECODER: {"sublayers": ["merged_attention", "cross_attention"]}},
        "decoder.sublayers",
        "attends to the source already",
    ),
    (
        {DECODER: {"sublayers": ["self_attention", "cross_attention", "self_attention"]}},
        "decoder.sublayers",
        "is listed twice",
    ),
    ({ENCODER: {"combination": DLCL | {"weights": "scalar_n"}}}, "weights", "needs groups"),
    ({ENCODER: {"combination": DLCL | {"groups": 4}}}, "weights", "with groups: 4"),
    (
        {ENCODER: {"combination": DLCL | {"weights": "scalar_n", "groups": 7}}},
        "encoder.combination.groups",
        "not a multiple",
    ),
    ({ENCODER: {"combination": BLOCKS | {"blocks": [0, 3]}}}, "encoder.combination.blocks", "is 6"),
    ({DECODER: {"combination": BLOCKS | {"blocks": [0, 4, 3, 6]}}}, "blocks", "do not rise from 0"),
    ({DECODER: {"combination": BLOCKS | {"blocks": [2, 6]}}}, "blocks", "do not rise from 0"),
    ({ENCODER: {"width": 1023, "heads": 3}}, "encoder.width", "is odd"),
    ({ENCODER: {"width": 1024, "heads": 12}}, "encoder.heads", "not a multiple"),
    ({ENCODER: {"width": 1024}}, "embeddings.sharing", "cannot share embeddings"),
    (
        {DECODER: {"width": 256}, "embeddings": {"sharing": "none", "bias": True}},
        "embeddings.bias",
        "cannot share the bias",
    ),
    (
        {ENCODER: {"width": 1024}, DECODER: MERGED, "embeddings": {"sharing": "decoder"}},
        "decoder.sublayers",
        "cannot share values in merged_attention",
    ),
]


@pytest.mark.parametrize(("model", "key", "reason"), CONFLICTS, ids=str)
def test_a_conflict_is_rejected_with_the_reason(model, key, reason):
    with pytest.raises(ValidationError) as caught:
        Recipe.model_validate({"model": model})
    (detail,) = caught.value.errors()
    conflict = detail["ctx"]["error"]
    assert ".".join(conflict.paths[0]) == key
    assert reason in conflict.what + conflict.hint and conflict.hint
