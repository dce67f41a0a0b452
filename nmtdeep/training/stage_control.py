"""The end of a training, and its stages from shallow to deep (Li et al. 2020)."""

from __future__ import annotations

import math
from dataclasses import replace

from nmtdeep.config.optimizer import InverseSquareRoot, LinearDecay
from nmtdeep.config.recipe import Recipe
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.state import Progress
from nmtdeep.units import percent


def stop_reason(recipe: Recipe, progress: Progress) -> str:
    """Why the training is over; empty if it is not."""
    if stage_ended(recipe, progress):  # a new epoch may be one too many, and patience start again
        progress = next_stage(recipe, progress)
    settings = recipe.training
    stages, patience = settings.stages, settings.validation.patience
    last = progress.last_update(settings)
    if last is not None and progress.update >= last:
        if settings.max_updates == "auto":
            return f"those that fit into {settings.max_minutes:g} minutes"
        return f"max_updates {last} reached"
    if settings.max_epochs is not None and progress.epoch >= settings.max_epochs:
        return f"max_epochs {settings.max_epochs} reached"
    if progress.stage + 1 == len(stages) and _reached_end(recipe, progress):
        return f"all {len(stages)} stages are complete"
    if settings.max_minutes is not None and progress.seconds >= settings.max_minutes * 60:
        return f"max_minutes {settings.max_minutes:g} reached"
    if patience and progress.validations_since_best >= patience:
        return f"no better validation in the last {patience}, best at update {progress.best_update}"
    return ""


def stage_ended(recipe: Recipe, progress: Progress) -> bool:
    """Whether the current stage is complete and another one follows."""
    return progress.stage + 1 < len(recipe.training.stages) and _reached_end(recipe, progress)


def _reached_end(recipe: Recipe, progress: Progress) -> bool:
    """Whether the current stage has an end that is reached."""
    stage = recipe.training.stages[progress.stage]
    if stage.updates is not None:
        return progress.update - progress.stage_update >= stage.updates
    if stage.epochs is not None:
        epochs = progress.position.epochs_of(stage.epochs_of)
        return epochs - progress.stage_epoch >= stage.epochs
    return False


def next_stage(recipe: Recipe, progress: Progress) -> Progress:
    """The progress at the start of the next stage.

    If groups or updates have other sizes, a new epoch begins. Patience starts again, because a
    model that has just grown is worse for a while.
    """
    old, new = (recipe.at_stage(progress.stage + more).training.batches for more in (0, 1))
    if (old.tokens_per_update, old.group_tokens) != (new.tokens_per_update, new.group_tokens):
        progress = replace(progress, position=progress.position.in_new_epoch())
    counted = recipe.training.stages[progress.stage + 1].epochs_of
    progress = replace(
        progress,
        stage=progress.stage + 1,
        stage_update=progress.update,
        stage_epoch=progress.position.epochs_begun(counted),
    )
    if keeps_model(recipe, progress.stage):
        return progress
    if recipe.training.growth.restart_lr:
        progress = restarted(recipe, progress)
    return replace(progress, validations_since_best=0, scaler={})


def keeps_model(recipe: Recipe, stage: int) -> bool:
    """Whether a stage differs from the one before in its mixture of corpora only.

    Then optimizer, learning rate and patience go on.
    """
    before, after = recipe.at_stage(stage - 1), recipe.at_stage(stage)
    return before != after == before.with_training(mixture=after.training.mixture)


def restarted(recipe: Recipe, progress: Progress) -> Progress:
    """`progress` with the learning rate back at its peak, or still in its warm-up.

    The schedule continues as if min(updates, warm-up) updates were done, as in the release of Li et
    al. 2020 (the paper says: reset the step number).
    """
    warmup = recipe.training.schedule.warmup_updates
    counted = min(progress.update - progress.schedule_offset, warmup)
    return replace(progress, schedule_offset=progress.update - counted)


def announcement(recipe: Recipe, progress: Progress) -> str:
    """The message at the start of a stage."""
    growth, model = recipe.training.growth, recipe.at_stage(progress.stage).model
    stages = len(recipe.training.stages)
    place = f"stage {progress.stage + 1} of {stages} | update {progress.update}"
    if keeps_model(recipe, progress.stage):
        mixture = recipe.at_stage(progress.stage).training.mixture.items()
        return f"{place} | mixture {', '.join(f'{name} {weight:g}' for name, weight in mixture)}"
    restart = ", learning rate restarted" if growth.restart_lr else ""
    return f"{place} | {model.depths} layers by {growth.name}{restart}"


def lr_of(recipe: Recipe, progress: Progress, update: int) -> float:
    """The learning rate of an update of the training that `progress` belongs to."""
    last = progress.last_update(recipe.training)
    return learning_rate(recipe, update, progress.schedule_offset, last=last)


def peak(recipe: Recipe, progress: Progress, update: int) -> float:
    """The highest learning rate up to an update, of a schedule that rises and then falls."""
    last, warmup = progress.last_update(recipe.training), recipe.training.schedule.warmup_updates
    turns = {warmup, warmup + 1, ((last or 0) - progress.schedule_offset) // 2}
    places = {min(update, progress.schedule_offset + max(1, turn)) for turn in turns}
    return max(lr_of(recipe, progress, place) for place in places)


def low_peak(recipe: Recipe, progress: Progress) -> str:
    """What is wrong with a training that is too short to reach its learning rate; else empty."""
    settings, last = recipe.training, progress.last_update(recipe.training)
    schedule = settings.schedule
    if last is None or not isinstance(schedule, LinearDecay | InverseSquareRoot):
        return ""
    reached, length = peak(recipe, progress, last), last - progress.schedule_offset
    if reached > 0.99 * schedule.lr:
        return ""
    warmup = f"the warm-up of {schedule.warmup_updates:,}"
    if settings.max_updates == "auto" and isinstance(schedule, LinearDecay):
        warmup = f"twice {warmup}"
    what = f"the learning rate's peak is {reached:.1e} instead of {schedule.lr:.1e}"
    less = f"{length:,} updates are fewer than {warmup}"
    return f"{what}: {less}; lower --warmup-updates, or train longer"


def nothing_to_do(recipe: Recipe, progress: Progress) -> str:
    """The message of a training whose end was reached before it began."""
    settings, update = recipe.training, progress.update
    total = progress.last_update(settings)
    if update >= (total or math.inf):
        return f"already at update {update} of {total}: nothing to do"
    reason = stop_reason(recipe, progress)
    if settings.max_minutes is not None and progress.seconds >= settings.max_minutes * 60:
        more = math.ceil(settings.max_minutes * (total or 2 * update) / max(update, 1))
        how = "--minutes " if settings.max_updates == "auto" else "training.max_minutes="
        reason += f": pass {how}{more} to go on"
    return f"already at update {update} of {total or 'unknown'}: nothing to do ({reason})"


def linear_not_finished(recipe: Recipe, progress: Progress) -> str:
    """A warning if a linear schedule ended while its rate was high; empty if it did not."""
    settings, update = recipe.training, progress.update
    schedule, last = settings.schedule, progress.last_update(settings)
    lr, highest = lr_of(recipe, progress, update), peak(recipe, progress, update)
    ended = last is not None and update >= last
    if not isinstance(schedule, LinearDecay) or ended or lr <= highest / 10:
        return ""
    advice = f"a linear schedule of this length does better with --max-updates {update}"
    if settings.max_minutes is not None and progress.seconds >= settings.max_minutes * 60:
        advice += f", or with --minutes {settings.max_minutes:g}"
        if settings.max_updates == "auto":
            needed = math.ceil(settings.max_minutes * (last or 2 * update) / update)
            slower = "updates took longer than those that its length was planned by"
            advice = f"{slower}; the same command with --minutes {needed} ends it"
    share = percent(lr / highest, 0)
    return f"warning: the learning rate was still at {share} of its peak; {advice}"
