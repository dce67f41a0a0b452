"""Models in which every two variants of different slots meet at least once."""

from itertools import combinations, product
from random import Random
from typing import Any

ATTENTION = ("self_attention", "cross_attention", "feed_forward")
GATED = {"type": "runge_kutta", "order": 2, "weights": "gate"}
RESIDUALS: tuple[object, ...] = (
    *("pre_norm", "post_norm", "normalized", "admin", "deep_norm", "rezero", "no_norm", "b2t"),
    GATED,
    {"type": "runge_kutta", "order": 2, "weights": "learned", "function": "output"},
    {"type": "runge_kutta", "order": 4},
    {"type": "complete_p", "base_depth": 2},
)
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
    {"type": "denseformer", "dilation": 2},
    {"type": "hyper_connections", "streams": 3},
    {"type": "hyper_connections", "streams": 2, "weights": "static"},
    {"type": "mhc", "streams": 2, "iterations": 3},
    {"type": "attention_residuals", "block": 2},
)
# These take the place of the residual sum.
OF_SUBLAYERS = ("hyper_connections", "mhc", "attention_residuals")
SUMS = ("pre_norm", "no_norm")
DECODERS: tuple[tuple[object, ...], ...] = (
    ATTENTION,
    ("cross_attention", "self_attention", "feed_forward"),
    ("cross_attention",),
    ("average_attention", "cross_attention", "feed_forward"),
    ({"type": "average_attention", "gate": False}, "cross_attention", "feed_forward"),
    ({"type": "average_attention", "feed_forward": True}, "cross_attention"),
    ("ssru", "cross_attention", "feed_forward"),
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
        {"type": "relative", "clip": 2, "first": 3},
        {"type": "relative", "clip": 1, "values": True, "sinusoids": False},
        "rotary",
    ),
    "bridge": ("top_layer", {"type": "transparent", "dropout": 0.2}, "projection"),
    "biases": ("all", "inner"),
    "sharing": ("all", "decoder", "none"),
    "bias": (False, True),
    "activation": ("relu", "gelu", "swish", "geglu", "swiglu"),
    "norm": ("layer_norm", "rms_norm"),
    "qk_norm": ("none", "rms_norm"),
    "embeddings": ({}, {"scale": "one", "output_bias": True}, {"start": "zero"}),
}


def sensible(choice: dict[str, Any]) -> bool:
    """Whether a recipe may combine these slots, and random weights compute something with them."""
    residuals = (choice["encoder"], choice["decoder"])
    if "no_norm" in residuals and GATED in residuals:
        return False  # what one stack returns saturates the other's gates
    return not any(
        (connects_sublayers(reads) and residual not in SUMS)
        or (residual == "no_norm" and is_unbounded(choice["activation"], reads))
        for residual, reads in zip(residuals, choice["combinations"], strict=True)
    )


def connects_sublayers(combination: object) -> bool:
    return isinstance(combination, dict) and combination["type"] in OF_SUBLAYERS


def is_unbounded(activation: str, combination: object) -> bool:
    """Without any norm gated maps square what they read, and sums of outputs saturate attention."""
    return activation.endswith("glu") or "'norm': 'none'" in str(combination)


OF_ENCODER, OF_DECODER = {"encoder", "encoder_reads"}, {"decoder", "decoder_reads", "sublayers"}
PARTS = {**SLOTS, "encoder_reads": LINEAR, "decoder_reads": LINEAR}
del PARTS["combinations"]
# Slots of the encoder and of the decoder need not meet: between them there are the memories.
MEETING = [
    (one, other)
    for one, other in combinations(PARTS, 2)
    if not ({one, other} & OF_ENCODER and {one, other} & OF_DECODER)
]


def filled(chosen: dict[str, int]) -> dict[str, Any]:
    """The choice with the first variant wherever nothing is chosen."""
    choice = {slot: variants[chosen.get(slot, 0)] for slot, variants in PARTS.items()}
    choice["combinations"] = (choice.pop("encoder_reads"), choice.pop("decoder_reads"))
    return choice


def covering() -> list[dict[str, Any]]:
    """Few sensible choices that hold every sensible pair of two slots' variants.

    Each is, of some random ones with a missing pair, the one with most of them.
    """
    random, choices = Random(1), []
    missing = {
        pair
        for one, other in MEETING
        for a, b in product(range(len(PARTS[one])), range(len(PARTS[other])))
        if sensible(filled(dict(pair := ((one, a), (other, b)))))
    }
    while missing:
        first, best = dict(min(missing)), set()
        for _ in range(60):
            drawn = {slot: random.randrange(len(each)) for slot, each in PARTS.items()} | first
            held = {((one, drawn[one]), (other, drawn[other])) for one, other in MEETING}
            if len(held & missing) > len(best & missing) and sensible(filled(drawn)):
                best, choice = held, filled(drawn)
        if best:
            missing -= best
            choices.append(choice)
    return choices


def variant(number: int) -> dict[str, Any]:
    choice = {slot: values[number % len(values)] for slot, values in SLOTS.items()}
    # Half as fast as the others, so that each meets both bridges.
    first, second = LINEAR[number // 2], LINEAR[(number // 2 + 3) % len(LINEAR)]
    choice |= {"combinations": (first, second), "depth": 3}
    for side, reads in (("encoder", first), ("decoder", second)):
        if connects_sublayers(reads):
            choice[side] = SUMS[number % 2]
    if not sensible(choice):
        choice["activation"] = "relu"
    return choice


# Stacks of two widths, and a deep one.
TRANSPARENT = {"type": "transparent", "dropout": 0.2}
DLCLS = ("dlcl", {"type": "dlcl", "weights": "vector"})
SELF = {"type": "merged_attention", "average": "self_attention"}
WANTED: list[dict[str, Any]] = [
    {"widths": (12, None), "sharing": "decoder", "bridge": TRANSPARENT, "combinations": DLCLS},
    {"widths": (None, 12), "sharing": "none", "sublayers": (SELF, "feed_forward")},
    {"widths": (12, None), "sharing": "decoder", "bridge": "projection"},
    {"depth": 6, "combinations": (LINEAR[7], "dense"), "sublayers": DECODERS[3]},
]
COMBINATIONS = [*({**choice, "depth": 3} for choice in covering()), *WANTED]


def held(choice: dict[str, Any]) -> set[tuple[str, str]]:
    """Its variants by slot; those of the two combinations are of two slots."""
    slots = {
        **choice,
        **dict(zip(("encoder reads", "decoder reads"), choice["combinations"], strict=True)),
    }
    del slots["combinations"]
    return {(slot, str(value)) for slot, value in slots.items()}


def few(choices: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those of the choices that together have every variant of every slot."""
    chosen, missing = {}, set().union(*map(held, choices.values()))
    while missing:
        name = max(choices, key=lambda name: len(held(choices[name]) & missing))
        chosen[name] = choices[name]
        missing -= held(choices[name])
    return chosen


VARIANTS = few({f"variant {number}": variant(number) for number in range(2 * len(LINEAR))})
