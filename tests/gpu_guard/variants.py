"""Few models that together have every variant of every slot."""

from __future__ import annotations

from typing import Any

from model.choices import LINEAR, SLOTS, SUMS, connects_sublayers, label, sensible


def _choice(number: int) -> dict[str, Any]:
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


VARIANTS = {label(choice): choice for choice in map(_choice, range(2 * len(LINEAR)))}
