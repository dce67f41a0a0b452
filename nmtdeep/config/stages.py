"""Stages of a training from shallow to deep: the recipe of each one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from nmtdeep.config import slots
from nmtdeep.config.model import Model, Stack
from nmtdeep.config.training import Stage, Training

SIDES = ("encoder", "decoder")
BATCHES = ("tokens_per_update", "group_tokens", "max_tokens")


def at_stage(model: Model, training: Training, number: int) -> tuple[Model, Training]:
    """Both sections in one stage, counted from 0: its depths and batches, and no stages."""
    stage = training.stages[number]
    for side in SIDES:
        depth = getattr(stage, side)
        if depth:
            model = model.model_copy(update={side: with_depth(getattr(model, side), depth)})
    batches = {key: value for key in BATCHES if (value := getattr(stage, key))}
    update = {
        "stages": (),
        "batches": training.batches.model_copy(update=batches),
        "frozen": stage.frozen or training.frozen,
    }
    return model, training.model_copy(update=update)


def with_depth(stack: Stack, depth: int) -> Stack:
    """The stack with another depth; a list of block boundaries ends there too."""
    changes: dict[str, Any] = {"depth": depth}
    combination = stack.combination
    if isinstance(combination, slots.SparseBlocks) and isinstance(combination.blocks, tuple):
        blocks = (*(end for end in combination.blocks if end < depth), depth)
        changes["combination"] = combination.model_copy(update={"blocks": blocks})
    return stack.model_copy(update=changes)


def check_stages(model: Model, training: Training) -> None:
    """Stages grow to the model's depth, and each but the last has an end.

    Raises:
        ValueError: naming the first stage that does not fit.
    """
    stages = training.stages
    for number, stage in enumerate(stages[:-1], start=1):
        if not (stage.updates or stage.epochs):
            raise ValueError(f"training.stages: stage {number} has no end: give updates or epochs")
    for side in SIDES:
        stack: Stack = getattr(model, side)
        depths = [getattr(stage, side) or stack.depth for stage in stages]
        if depths != sorted(depths) or depths[-1:] not in ([], [stack.depth]):
            raise ValueError(
                f"training.stages: {side} depths {depths} must rise to model.{side}.depth "
                f"{stack.depth}"
            )
        for depth, stage in zip(depths or [stack.depth], stages or [Stage()], strict=True):
            frozen = getattr(stage.frozen or training.frozen, side)
            if frozen > depth:
                raise ValueError(
                    f"training.frozen.{side} {frozen} is more than the {depth} layers there are"
                )
        whole = all(new % old == 0 for old, new in pairwise(depths))
        if training.growth.strategy == "stack_all" and not whole:
            raise ValueError(
                f"training.growth.strategy: stack_all repeats the whole stack, which {side} depths "
                f"{depths} do not: let each be a multiple of the one before"
            )
