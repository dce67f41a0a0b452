"""Start values of maps from one width to another: measured values == the formula."""

import pytest

from nmtdeep.model.build import build, initialize
from tests.model.test_initializers import DEEP_NORM, DEPTH, T_FIXUP, TYPES, D, check

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
        described = tiny_config(
            width=D,
            widths=(WIDE, None),
            sharing="none",
            depth=DEPTH,
            initializer=initializer,
            **choice,
        )
        model = build(described, source_types=TYPES, target_types=TYPES)
        initialize(model, described, seed=1)
        return model

    keys, values = made().decoder.layers[1].sublayers[1].sublayer.key_value.weight.split(D)
    check(keys, key, law)
    check(values, value, law)
    check(made(bridge="projection").bridge.projection.weight, bridge, law)
