"""Models in which every two variants of different slots meet at least once."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

ATTENTION = ("self_attention", "cross_attention", "feed_forward")
RESIDUALS = ("pre_norm", "post_norm", "normalized", "admin", "deep_norm", "rezero", "no_norm")
LINEAR: tuple[object, ...] = (
    "residual",
    "dense",
    {"type": "dense", "weight": "one", "norm": "none"},
    "dlcl",
    {"type": "dlcl", "weights": "vector", "norm": "all", "dropout": 0.3},
    {"type": "dlcl", "weights": "scalar_n", "groups": 4, "softmax": True},
    {"type": "dlcl", "window": 2, "initial": "one", "learnable": False},
    {"type": "sparse_blocks", "blocks": 2},
    {"type": "sparse_blocks", "blocks": [0, 1, 3], "norm": "none"},
    {"type": "sparse_blocks", "blocks": 9},
)
DECODERS: tuple[tuple[object, ...], ...] = (
    ATTENTION,
    ("cross_attention", "self_attention", "feed_forward"),
    ("cross_attention",),
    ("average_attention", "cross_attention", "feed_forward"),
    ({"type": "average_attention", "gate": False}, "cross_attention", "feed_forward"),
    ({"type": "average_attention", "feed_forward": True}, "cross_attention"),
    ("merged_attention", "feed_forward"),
    ({"type": "merged_attention", "average": "average_attention"}, "feed_forward"),
    ({"type": "merged_attention", "average": "self_attention"}, "feed_forward"),
)
SLOTS: dict[str, tuple[Any, ...]] = {
    "encoder": RESIDUALS,
    "decoder": RESIDUALS,
    "combinations": tuple(product(LINEAR, LINEAR)),
    "sublayers": DECODERS,
    "positions": (
        "sinusoidal",
        {"type": "sinusoidal", "rates": "paper"},
        {"type": "relative", "clip": 2},
        {"type": "relative", "clip": 1, "values": True, "sinusoids": False},
    ),
    "bridge": ("top_layer", {"type": "transparent", "dropout": 0.2}),
    "biases": ("all", "inner"),
    "sharing": ("all", "decoder", "none"),
    "bias": (False, True),
    "activation": ("relu", "gelu", "swish"),
    "embeddings": ({}, {"scale": "one", "output_bias": True}),
}


def sensible(choice: dict[str, Any]) -> bool:
    """Whether a recipe may combine these slots."""
    mixed = choice["combinations"][0] != "residual"
    return choice["bridge"] == "top_layer" or not mixed


def covering(slots: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Few sensible choices that hold every sensible pair of two slots' variants, greedily.

    The two combinations of a choice count as two slots.
    """
    parts = {**slots, "encoder_reads": LINEAR, "decoder_reads": LINEAR}
    del parts["combinations"]
    missing = {
        ((first, a), (second, b))
        for first, second in combinations(parts, 2)
        for a, b in product(range(len(parts[first])), range(len(parts[second])))
        if sensible(filled(parts, {first: a, second: b}))
    }
    choices = []
    while missing:
        chosen: dict[str, int] = {}
        for pair in sorted(missing):
            agrees = all(chosen.get(slot, value) == value for slot, value in pair)
            if agrees and sensible(filled(parts, {**chosen, **dict(pair)})):
                chosen.update(pair)
        missing -= set(combinations([(slot, chosen.get(slot, 0)) for slot in parts], 2))
        choices.append(filled(parts, chosen))
    return choices


def filled(parts: dict[str, tuple[Any, ...]], chosen: dict[str, int]) -> dict[str, Any]:
    """The choice with the first variant wherever nothing is chosen."""
    choice = {slot: variants[chosen.get(slot, 0)] for slot, variants in parts.items()}
    choice["combinations"] = (choice.pop("encoder_reads"), choice.pop("decoder_reads"))
    return choice


def label(choice: dict[str, Any]) -> str:
    """Readable, and its own among all choices."""
    return "-".join(map(short, choice.values()))


def short(value: object) -> str:
    if isinstance(value, dict):
        return "+".join(map(short, value.values()))
    if isinstance(value, tuple | list):
        return "/".join(map(short, value))
    return "".join(part[:2] for part in str(value).split("_"))


# Usual models in addition to those that cover all pairs.
WANTED: list[dict[str, Any]] = [
    {
        "encoder": "post_norm",
        "decoder": "post_norm",
        "combinations": ("dlcl", "dlcl"),
        "positions": {"type": "relative", "clip": 2},
        "sublayers": ("merged_attention", "feed_forward"),
    },
    {
        "decoder": "deep_norm",
        "combinations": ({"type": "sparse_blocks", "blocks": 2}, "dense"),
        "positions": {"type": "relative", "clip": 3},
        "sublayers": ("average_attention", "cross_attention", "feed_forward"),
        "depth": 6,
    },
]
COMBINATIONS = [*({**choice, "depth": 3} for choice in covering(SLOTS)), *WANTED]
