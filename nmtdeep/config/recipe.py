"""A whole recipe: text, model, training, decoding, and its source."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field, model_validator

from nmtdeep.config.decoding import Decoding
from nmtdeep.config.model import SIDES, Model, Stack
from nmtdeep.config.section import ConflictError, Section
from nmtdeep.config.stages import Stage
from nmtdeep.config.text import NoBpe, Text
from nmtdeep.config.training import Training


class Reference(Section):
    """The published experiment behind a recipe, and its expected scores."""

    paper: str = Field("", description="citation")
    table: str = Field("", description="table of that paper")
    row: str = Field("", description="row of that table")
    scores: dict[Annotated[str, Field(max_length=200)], float] = Field(
        {}, description="published scores by name"
    )
    parameters: str = Field("", description="published parameter count, as printed")
    note: str = Field("", description="other important facts")


class Recipe(Section):
    """A whole experiment."""

    description: str = Field("", description="one line for `recipes list`")
    reference: Reference = Reference()
    text: Text = Text()
    model: Model = Model()
    training: Training = Training()
    decoding: Decoding = Decoding()

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        if self.model.embeddings.sharing == "all" and self.text.vocabulary.sharing != "shared":
            keys = ("model.embeddings.sharing", "text.vocabulary.sharing")
            what = f"{keys[0]}: all needs one vocabulary for both languages"
            hint = f"set {keys[1]}: shared, or {keys[0]}: decoder"
            raise ConflictError(what, *keys, hint=hint)
        if self.text.input == "bpe" and not isinstance(self.text.bpe, NoBpe):
            raise ConflictError("bpe is split already", "text.input", hint="set text.bpe: none")
        for side in SIDES:
            complete_p = getattr(self.model, side).residual.type == "complete_p"
            if complete_p and self.training.optimizer.type != "adam":
                keys = (f"model.{side}.residual", "training.optimizer")
                what = f"complete_p sets rates of Adam, not of {self.training.optimizer.type}"
                raise ConflictError(what, *keys, hint="set training.optimizer: adam")
        _check_stages(self.model, self.training)
        return self

    def uses_packing(self, device: str) -> bool:
        """Whether a training on this type of device has packed batches, without padding.

        A GPU is fast on many tokens of any lengths at once. On a CPU groups of similar length are
        as fast and keep less memory busy. Relative positions and the regularizer need padding.
        """
        model = self.model
        parts = (model.positions, *model.encoder.sublayers, *model.decoder.sublayers)
        # Variants of other packages say what they take.
        padded = any(not getattr(part, "takes_packing", part.type != "relative") for part in parts)
        return device == "cuda" and not padded and self.training.regularizer.type == "none"

    def with_training(self, **values: Any) -> Recipe:
        """The recipe with other values in its section `training`."""
        training = self.training.model_copy(update=values)
        return self.model_copy(update={"training": training})

    def at_stage(self, number: int) -> Recipe:
        """The recipe of one stage, counted from 0; the recipe itself if it has no stages."""
        if not self.training.stages:
            return self
        stage, batches = self.training.stages[number], self.training.batches
        depths = {side: getattr(stage, side) for side in SIDES if getattr(stage, side)}
        stacks = {side: getattr(self.model, side).with_depth(depths[side]) for side in depths}
        changed = {
            key: value for key in type(batches).model_fields if (value := getattr(stage, key))
        }
        given = (each.mixture for each in self.training.stages[: number + 1] if each.mixture)
        mixtures = [self.training.mixture, *given]
        recipe = self.with_training(
            stages=(),
            batches=batches.model_copy(update=changed),
            frozen=stage.frozen or self.training.frozen,
            mixture=mixtures[-1],
        )
        return recipe.model_copy(update={"model": self.model.model_copy(update=stacks)})


def _check_stages(model: Model, training: Training) -> None:
    """Stages grow to the model's depth, and each but the last has an end."""
    stages = training.stages
    for number, stage in enumerate(stages[:-1], start=1):
        if not (stage.updates or stage.epochs):
            what = f"stage {number} has no end"
            raise ConflictError(what, "training.stages", hint="set its updates or epochs")
    for side in SIDES:
        stack: Stack = getattr(model, side)
        depths = [getattr(stage, side) or stack.depth for stage in stages]
        if depths != sorted(depths) or depths[-1:] not in ([], [stack.depth]):
            what = f"{side} depths {depths} must rise to model.{side}.depth {stack.depth}"
            raise ConflictError(what, "training.stages", hint="change the depths")
        for depth, stage in zip(depths or [stack.depth], stages or [Stage()], strict=True):
            frozen = getattr(stage.frozen or training.frozen, side)
            if frozen != "all" and frozen > depth:
                what = f"{side} {frozen} is more than the {depth} layers there are"
                keys = (f"training.frozen.{side}", "training.stages")
                raise ConflictError(what, *keys, hint="freeze fewer layers")
        if training.growth.strategy == "stack_all" and any(
            new % old for old, new in pairwise(depths)
        ):
            what = f"stack_all repeats the whole stack, but {side} depths are {depths}"
            hint = "let each depth be a multiple of the one before"
            raise ConflictError(what, "training.growth.strategy", hint=hint)
