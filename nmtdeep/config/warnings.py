"""Valid recipes that lack one half of a method, and growth that changes what was learned."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from nmtdeep.config import slots
from nmtdeep.config.model import SIDES, Model, Stack
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import Problem

# The initializer that belongs to a residual wrapper, and what happens with another one.
PARTNERS = {
    "admin": ("admin", "its omegas start at 1, as post_norm"),
    "deep_norm": ("deep_norm", "its alpha expects matrices scaled by beta"),
    "no_norm": ("t_fixup", "outputs grow from layer to layer"),
}


def warnings(recipe: Recipe) -> list[Problem]:
    """What is probably not meant in a valid recipe; each with what to do."""
    models = [recipe.at_stage(number).model for number in range(len(recipe.training.stages))]
    grown = [problem for old, new in pairwise(models) for problem in growth(old, new)]
    return list(dict.fromkeys([*_halves(recipe.model), *_no_positions(recipe.model), *grown]))


def growth(old: Model, new: Model) -> Iterator[Problem]:
    """What growing `old` to `new` changes in the layers that are copied."""
    for side in SIDES:
        before, after = getattr(old, side), getattr(new, side)
        more = f"growing from {old.depths} to {new.depths} layers"
        resized, any_resized = before.depth != after.depth, old.depths != new.depths
        # The encoder's alpha is of both depths, the decoder's of its own.
        changes = any_resized if side == "encoder" else resized
        if before.residual.type == "deep_norm" and changes:
            what = f"{more} changes alpha of deep_norm in the layers that are copied"
            yield Problem(what, f"model.{side}.residual", "train at one depth, or choose pre_norm")
        if before.residual.type == "complete_p" and resized:
            what = f"{more} changes the branches of complete_p in the layers that are copied"
            yield Problem(what, f"model.{side}.residual", "train at one depth, or choose pre_norm")
        if before.depth in _boundaries(before) and before.depth not in _boundaries(after):
            what = f"{more} ends a block elsewhere, so that the weights of the old top row are lost"
            yield Problem(what, f"model.{side}.combination.blocks", "end a block at each depth")


def _halves(model: Model) -> Iterator[Problem]:
    for side in SIDES:
        stack: Stack = getattr(model, side)
        initializer, residual = (stack.initializer or model.initializer).type, stack.residual.type
        key = f"model.{side}.initializer" if stack.initializer else "model.initializer"
        partner, why = PARTNERS.get(residual, ("", ""))
        if partner and initializer != partner:
            what = f"{residual} lacks initializer: {partner}, and has {initializer}: {why}"
            yield Problem(what, f"model.{side}.residual", f"set {key}: {partner}")
        wanted = [name for name, (its, _) in PARTNERS.items() if its == initializer]
        if wanted and not partner:
            what = f"{initializer} is made for residual: {wanted[0]}, not {residual}"
            yield Problem(what, key, f"set model.{side}.residual: {wanted[0]}")


def _no_positions(model: Model) -> Iterator[Problem]:
    what = "the decoder has no positions, for it has no self-attention"
    parts = model.decoder.sublayers
    if any("self_attention" in part.model_dump().values() for part in parts):
        return
    if isinstance(model.positions, slots.Rotary):
        yield Problem(what, "model.positions", "choose sinusoidal or relative")
    if isinstance(model.positions, slots.Relative) and not model.positions.sinusoids:
        yield Problem(what, "model.positions.sinusoids", "set it to true")


def _boundaries(stack: Stack) -> tuple[int, ...]:
    part = stack.combination
    return part.boundaries(stack.depth) if isinstance(part, slots.SparseBlocks) else ()
