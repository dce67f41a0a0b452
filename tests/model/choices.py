"""Models in which every two variants of different slots meet at least once."""

from collections import Counter
from itertools import combinations, product
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
    "embeddings": ({}, {"scale": "one", "output_bias": True}),
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


ENCODER, DECODER = ("encoder", "encoder_reads"), ("decoder", "decoder_reads", "sublayers")


def covering(slots: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Few sensible choices that hold every sensible pair of two slots' variants, greedily.

    The two combinations of a choice are two slots. Slots of the encoder and of the decoder need
    not meet: between them there are the memories, whatever they are computed from.
    """
    parts = {**slots, "encoder_reads": LINEAR, "decoder_reads": LINEAR}
    del parts["combinations"]
    pairs = [pair for pair in combinations(parts, 2) if not apart(*pair)]
    missing = {
        ((first, a), (second, b))
        for first, second in pairs
        for a, b in product(range(len(parts[first])), range(len(parts[second])))
        if sensible(filled(parts, {first: a, second: b}))
    }
    order = sorted(parts, key=lambda slot: (-len(parts[slot]), slot))
    choices = []
    while missing:
        left = Counter(part for pair in missing for part in pair)
        chosen = dict(max(missing, key=lambda pair: (left[pair[0]] + left[pair[1]], pair)))
        for slot in [slot for slot in order if slot not in chosen]:
            options = [(slot, value) for value in range(len(parts[slot]))]
            valid = [part for part in options if sensible(filled(parts, chosen | dict([part])))]
            best = max(valid, key=lambda part: (len(missing & meetings(part, chosen)), left[part]))
            chosen |= dict([best])
        missing -= {pair for part in chosen.items() for pair in meetings(part, chosen)}
        choices.append(filled(parts, chosen))
    return choices


def apart(first: str, second: str) -> bool:
    """Whether one slot belongs to the encoder and the other one to the decoder."""
    sides = [(slot in ENCODER) - (slot in DECODER) for slot in (first, second)]
    return sum(sides) == 0 and any(sides)


def meetings(part: tuple[str, int], chosen: dict[str, int]) -> set[tuple[Any, ...]]:
    """The pairs of one slot's variant with the chosen ones, in both orders."""
    return {pair for other in chosen.items() for pair in ((part, other), (other, part))}


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


def _variants(number: int) -> dict[str, Any]:
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


# Usual models in addition to those that cover all pairs.
WANTED: list[dict[str, Any]] = [
    {
        "widths": (12, None),
        "sharing": "decoder",
        "combinations": ("dlcl", {"type": "dlcl", "weights": "vector"}),
        "bridge": {"type": "transparent", "dropout": 0.2},
        "positions": {"type": "relative", "clip": 2},
    },
    {
        "widths": (None, 12),
        "sharing": "none",
        "encoder": "post_norm",
        "decoder": "post_norm",
        "sublayers": ({"type": "merged_attention", "average": "self_attention"}, "feed_forward"),
        "qk_norm": "rms_norm",
    },
    {
        "widths": (12, None),
        "sharing": "decoder",
        "bridge": "projection",
        "sublayers": ("merged_attention", "feed_forward"),
    },
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
# Few models that together have every variant of every slot.
VARIANTS = {label(choice): choice for choice in map(_variants, range(2 * len(LINEAR)))}
