"""Recipe section `training`: batches, regularizer, validations, checkpoints, and the whole."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from nmtdeep.config.optimizer import Adam, InverseSquareRoot, Optimizer, Schedule
from nmtdeep.config.section import (
    Beam,
    Bool,
    ConflictError,
    Count,
    CountOrAuto,
    CountOrZero,
    Interval,
    NotNegative,
    Positive,
    Probability,
    Section,
    later,
)
from nmtdeep.config.stages import Frozen, Growth, Mixture, Stage, StartFrom
from nmtdeep.config.variant import OneOf, Variant


class Batches(Section):
    """The division of sentences into updates; the same on one device and on eight."""

    tokens_per_update: Count = Field(
        25_000, description="padded tokens (longer side) per optimizer step, over all devices"
    )
    group_tokens: Count = Field(
        4096, description="padded tokens of a group of sentences of similar length"
    )
    max_tokens: Count | None = Field(
        None,
        description="padded tokens that one device processes at once; changes no update but its "
        "dropout masks; by default group_tokens, or on a GPU the whole update",
    )

    def limit(self, *, packed: bool) -> int:
        """The value of `max_tokens`; `packed`: whether batches have no padding."""
        return self.max_tokens or (self.tokens_per_update if packed else self.group_tokens)


class NoRegularizer(Section):
    """The loss alone."""

    type: Literal["none"] = "none"


class InterSimilarity(Section):
    """weight x sum over encoder layers of (1 - inter-similarity) (Li et al. 2020, Reg-6L)."""

    type: Literal["inter_similarity"] = "inter_similarity"
    weight: Positive = Field(1.0, description="times the loss of a target token")


class RDrop(Section):
    """Every sentence twice with other dropout, and the divergence of both (Wu et al. 2021)."""

    type: Literal["r_drop"] = "r_drop"
    alpha: Positive = Field(5.0, description="weight of the divergence of both predictions")


class RegularizerVariant(Variant):
    """A regularizer of another package."""

    slot: ClassVar[str] = "regularizer"

    def penalty(self, outputs: Any, mask: Any, target_tokens: Any) -> Any:
        """The penalty of a batch, a sum over its target tokens like the loss; a tensor.

        Args:
            outputs: encoder's y_0 ... y_L, each `(sentences, source, width)`.
            mask: `(sentences, source)`, True at real tokens.
            target_tokens: `(sentences,)` numbers.
        """
        raise NotImplementedError


Regularizer = OneOf[NoRegularizer | InterSimilarity | RDrop | RegularizerVariant]


# Names of sacreBLEU.
Tokenization = Literal["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores200"]


class Validation(Section):
    """Validations during training, and the choice of the best checkpoint."""

    every: Interval = Field(
        1000, description="updates between validations; or epochs, as in 1 epoch or 2 epochs"
    )
    bleu: Bool = Field(
        True, description="translate the validation set and score it by BLEU and chrF"
    )
    comet: str | None = later(None, "COMET model that scores it too: folder or name")
    tokenize: Tokenization | None = later(
        None,
        "tokens of BLEU, in final scores too, as sacreBLEU calls them; null: by target "
        "language when the run starts; flores200 downloads a model",
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
        description="average this many newest checkpoints at the end, without those saved only "
        "because they were the best so far, and score the result; 0: none",
    )

    @model_validator(mode="after")
    def _check(self) -> Checkpoints:
        if self.average_last > self.keep_last:
            what = f"average_last {self.average_last} is more than keep_last {self.keep_last} keeps"
            raise ConflictError(what, "average_last", "keep_last", hint="raise keep_last")
        return self


LoggerName = Literal["tensorboard", "wandb"]
SET_MINUTES = "set max_minutes, or pass --minutes instead"


class Training(Section):
    """The training of a model."""

    seed: CountOrZero = Field(
        1, description="random seed for initialization, data order and dropout"
    )
    max_updates: CountOrAuto = Field(
        100_000,
        description="stop after this many updates; auto: as many as fit into max_minutes, fixed "
        "after 50 updates by their speed",
    )
    max_epochs: Count | None = Field(None, description="stop after this many epochs")
    max_minutes: Positive | None = Field(
        None,
        description="stop after this many minutes, including validation and time before a restart",
    )
    mixture: Mixture = later(
        {},
        "weights of the training corpora by name, or {temperature: T} for "
        "size^(1/T); empty: each in proportion to its size",
    )
    start_from: StartFrom | None = later(
        None,
        "the weights to start from (`--from`); null: initial values",
    )
    batches: Batches = Batches()
    optimizer: Optimizer = Adam()
    schedule: Schedule = InverseSquareRoot()
    label_smoothing: Probability = Field(
        0.1, description="mass spread evenly over all classes but the target"
    )
    regularizer: Regularizer = Field(NoRegularizer(), description="added to the loss")
    stages: tuple[Stage, ...] = Field(
        (), description="stages, such as from shallow to deep; the last one may have no end"
    )
    growth: Growth = Growth()
    frozen: Frozen = Frozen()
    ema: Probability = Field(
        0.0,
        description="decay of an exponential moving average of the weights, such as 0.999, which "
        "validation, checkpoints and translations use; 0: none",
    )
    clip_norm: NotNegative = Field(0.0, description="largest gradient norm; 0: no clipping")
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = Field(
        "auto",
        description="number format of matrix products; auto: bf16 where the device computes it "
        "natively, else fp32",
    )
    quantization: Literal["none", "int8"] = later(
        "none",
        "int8: in every pass, weights, embeddings and inputs of linear maps are rounded to 8-bit "
        "integers, and gradients ignore it; for the last updates before an export (`--from`)",
    )
    checkpoint_activations: Literal["none", "layers"] = Field(
        "none",
        description="layers: keep only the input of each layer and recompute the rest in the "
        "backward pass; less memory, more time, the same gradients",
    )
    validation: Validation = Validation()
    checkpoints: Checkpoints = Checkpoints()
    log_every: Count = Field(100, description="updates between log lines")
    record_gradients: Bool = later(
        False,
        "record gradient norms of the first and the last layer of both stacks in "
        "train.jsonl, as means over the updates of a record",
    )
    log_to: tuple[LoggerName, ...] | None = Field(
        None,
        description="receivers of the figures beside the screen and train.jsonl; "
        "null: tensorboard, where it is installed",
    )

    @model_validator(mode="after")
    def _check(self) -> Training:
        if self.max_updates == "auto" and self.max_minutes is None:
            what = "auto is the number of updates that fit into max_minutes, which has no value"
            raise ConflictError(what, "max_updates", "max_minutes", hint=SET_MINUTES)
        if self.max_updates == "auto" and self.stages:
            what = "auto cannot be combined with stages, whose updates differ in time"
            raise ConflictError(what, "max_updates", "stages", hint="set a number of updates")
        return self
