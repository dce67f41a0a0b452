"""Recipe sections `training.validation` and `training.checkpoints`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from nmtdeep.config.section import (
    Beam,
    ConflictError,
    Count,
    CountOrZero,
    Interval,
    Section,
    is_absent,
)


class Validation(Section):
    """Validations during training, and the choice of the best checkpoint."""

    every: Interval = Field(
        1000, description="updates between validations; or epochs, as in 1 epoch or 2 epochs"
    )
    bleu: bool = Field(
        True, description="translate the validation set and score it by BLEU and chrF"
    )
    comet: str | None = Field(
        None, description="COMET model that scores it too: folder or name", exclude_if=is_absent
    )
    beam: Beam = Field(1, description="beam of that translation")
    best_by: Literal["bleu", "chrf", "comet", "loss"] = Field(
        "bleu", description="the score that decides which checkpoint is best"
    )
    patience: CountOrZero = Field(
        0, description="stop after this many validations without improvement; 0: never"
    )

    @model_validator(mode="after")
    def _check(self) -> Validation:
        if self.best_by != "loss" and not self.bleu:
            what = f"best_by: {self.best_by} needs bleu: true"
            hint = "set bleu: true, or best_by: loss"
            raise ConflictError(what, "best_by", "bleu", hint=hint)
        if self.best_by == "comet" and not self.comet:
            hint = "set validation.comet to a folder or name, or best_by: bleu"
            raise ConflictError("best_by: comet needs a model", "best_by", "comet", hint=hint)
        if self.comet and not self.bleu:
            what, hint = "comet scores the translation of bleu: true", "set bleu: true"
            raise ConflictError(what, "comet", "bleu", hint=hint)
        return self


class Checkpoints(Section):
    """Intervals and numbers of checkpoints on disk."""

    every: Interval = Field(1000, description="updates between checkpoints, or epochs")
    keep_last: Count = Field(5, description="number of newest checkpoints to keep")
    keep_best: CountOrZero = Field(1, description="number of best checkpoints to keep as well")
    average_last: CountOrZero = Field(
        0,
        description="average this many newest checkpoints at the end and score the result; 0: none",
    )

    @model_validator(mode="after")
    def _check(self) -> Checkpoints:
        if self.average_last > self.keep_last:
            what = f"average_last {self.average_last} is more than keep_last {self.keep_last} keeps"
            raise ConflictError(what, "average_last", "keep_last", hint="raise keep_last")
        return self
