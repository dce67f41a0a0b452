"""Recipe sections `training.stages`, `growth`, `frozen`, `start_from` and `mixture`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from nmtdeep.config.section import (
    Bool,
    ConflictError,
    Count,
    CountOrZero,
    Depth,
    Name,
    Positive,
    Section,
    later,
)
from nmtdeep.config.variant import OneOf, Variant


class Frozen(Section):
    """Parts of the model that are not trained."""

    encoder: CountOrZero | Literal["all"] = Field(
        0, description="number of bottom encoder layers to freeze; all: the whole stack"
    )
    decoder: CountOrZero | Literal["all"] = Field(
        0, description="number of bottom decoder layers to freeze; all: the whole stack"
    )
    embeddings: Bool = later(False, "freeze the embeddings and the output matrix")

    @model_validator(mode="after")
    def _check(self) -> Frozen:
        if self.encoder == self.decoder == "all" and self.embeddings:
            keys = ("encoder", "decoder", "embeddings")
            what = "encoder, decoder and embeddings are frozen, so that nothing is left to train"
            raise ConflictError(what, *keys, hint="leave out one of them")
        return self


class StartFrom(Section):
    """The weights that a new training starts from; optimizer, schedule and counters are new."""

    path: str = Field(description="run directory or checkpoint of the same model and text")
    checkpoint: str | None = Field(
        None, description="the checkpoint that path means; `nmtdeep train` writes it down"
    )
    sha256: str | None = Field(
        None, description="SHA-256 of its model.safetensors; if it is given, others are refused"
    )


# In place of a corpus, the key of a mixture by size.
TEMPERATURE = "temperature"


def _check_mixture(mixture: dict[str, float]) -> dict[str, float]:
    if TEMPERATURE in mixture and len(mixture) > 1:
        what = "a temperature cannot be combined with weights of corpora"
        raise ConflictError(what, TEMPERATURE, hint="leave out one of them")
    return mixture


Mixture = Annotated[dict[Name, Positive], AfterValidator(_check_mixture)]


class Stage(Section):
    """A part of a training; null: as in the whole recipe."""

    encoder: Depth | None = Field(None, description="encoder layers of this stage")
    decoder: Depth | None = Field(None, description="decoder layers of this stage")
    updates: Count | None = Field(None, description="length of this stage, in updates")
    epochs: Count | None = Field(None, description="length of this stage, in epochs")
    epochs_of: Name | None = later(
        None,
        "the training corpus whose epochs are counted; null: the first one",
    )
    mixture: Mixture = later({}, "as training.mixture, for this stage and those after it")
    tokens_per_update: Count | None = Field(None, description="as in batches, for this stage")
    group_tokens: Count | None = Field(None, description="as in batches, for this stage")
    max_tokens: Count | None = Field(None, description="as in batches, for this stage")
    frozen: Frozen | None = Field(None, description="as training.frozen, for this stage")

    @model_validator(mode="after")
    def _check(self) -> Stage:
        if self.updates and self.epochs:
            what = "a stage has a length in updates or in epochs, not both"
            raise ConflictError(what, "updates", "epochs", hint="leave one of them out")
        if self.epochs_of and not self.epochs:
            raise ConflictError("needs epochs", "epochs_of", hint="set epochs, or leave it out")
        return self


Strategy = Literal["copy_top_group", "copy_top_layer", "interpolate", "stack_all", "random"]


class GrowthVariant(Variant):
    """A growth strategy of another package."""

    slot: ClassVar[str] = "growth strategy"

    def layer_map(self, old: int, new: int) -> list[int | None]:
        """The source of each of `new` layers, or None for initial values; all `old` are sources."""
        raise NotImplementedError


GrowthStrategy = OneOf[Strategy | GrowthVariant]


class Growth(Section):
    """The growth of a model from one stage to the next."""

    strategy: GrowthStrategy = Field(
        "copy_top_group",
        description="where new layers come from; copy_top_group: the topmost, in order; "
        "copy_top_layer: the topmost one, repeated; interpolate: each new layer follows the one "
        "that it copies; stack_all: the whole stack again; random: new initial values",
    )
    restart_lr: Bool = Field(
        True, description="true: each stage restarts the schedule at its peak; false: it continues"
    )

    @property
    def name(self) -> str:
        """The strategy as a recipe names it."""
        return self.strategy if isinstance(self.strategy, str) else self.strategy.type
