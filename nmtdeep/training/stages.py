"""Stages of a training from shallow to deep (Li et al. 2020): where one ends and another begins."""

from __future__ import annotations

from dataclasses import replace

from nmtdeep.config import Recipe
from nmtdeep.data.windows import DataPosition
from nmtdeep.training.state import Progress


def is_over(recipe: Recipe, progress: Progress) -> bool:
    """Whether the stage that `progress` stands in is done and another one follows."""
    return progress.stage + 1 < len(recipe.training.stages) and _is_done(recipe, progress)


def are_done(recipe: Recipe, progress: Progress) -> bool:
    """Whether the last stage has an end and has come to it."""
    return progress.stage + 1 == len(recipe.training.stages) and _is_done(recipe, progress)


def _is_done(recipe: Recipe, progress: Progress) -> bool:
    stage = recipe.training.stages[progress.stage]
    if stage.updates is not None:
        return progress.update - progress.stage_update >= stage.updates
    if stage.epochs is not None:
        return progress.epoch - progress.stage_epoch >= stage.epochs
    return False


def begin_next(recipe: Recipe, progress: Progress) -> Progress:
    """The position at the start of the next stage.

    Where updates are made of other sentences from now on, a fresh epoch begins. Patience begins
    anew, for a model that has just grown is worse for a while.
    """
    before, after = (recipe.at_stage(progress.stage + more) for more in (0, 1))
    old, new = before.training.batches, after.training.batches
    same = (old.tokens_per_update, old.group_tokens) == (new.tokens_per_update, new.group_tokens)
    if not same and progress.position.next_in_epoch:
        progress = replace(progress, position=DataPosition(progress.epoch + 1))
    if recipe.training.growth.restart_lr:
        progress = restarted(recipe, progress)
    return replace(
        progress,
        stage=progress.stage + 1,
        stage_update=progress.update,
        stage_epoch=progress.epoch,
        stale=0,
        scaler={},
    )


def restarted(recipe: Recipe, progress: Progress) -> Progress:
    """With the learning rate back at its peak, or still on its way there.

    The schedule counts min(updates, warm-up) updates from here on, as the release of Li et al. 2020
    does (its paper says: reset the step number). A linear schedule falls to zero over the updates
    that remain.
    """
    warmup = recipe.training.schedule.warmup_updates
    counted = min(progress.update - progress.schedule_offset, warmup)
    return replace(progress, schedule_offset=progress.update - counted)


def announcement(recipe: Recipe, progress: Progress) -> str:
    """What a training says when a stage begins."""
    stages = recipe.training.stages
    model = recipe.at_stage(progress.stage).model
    restart = ", learning rate restarted" if recipe.training.growth.restart_lr else ""
    return (
        f"stage {progress.stage + 1} of {len(stages)} | update {progress.update} | "
        f"{model.encoder.depth}+{model.decoder.depth} layers by {recipe.training.growth.strategy}"
        f"{restart}"
    )
