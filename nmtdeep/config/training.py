"""Recipe section `training`: batches, optimizer, schedule, validation and checkpoints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from nmtdeep.config.section import (
    Beam,
    ConflictError,
    Count,
    CountOrAuto,
    CountOrZero,
    Depth,
    Name,
    NotNegative,
    OneOf,
    Positive,
    Probability,
    Section,
    is_absent,
)


class Moments(Section):
    """The common settings of both optimizers: those of Adam."""

    betas: tuple[Probability, Probability] = Field((0.9, 0.98), description="moment decay rates")
    epsilon: Positive = Field(1e-8, description="added to the root of the second moment")
    weight_decay: NotNegative = Field(0.0, description="decoupled, times the learning rate")


class Adam(Moments):
    """Adam with decoupled weight decay; epsilon is outside the root."""

    type: Literal["adam"] = "adam"


class Muon(Moments):
    """Orthogonalized momentum for the layers' matrices, Adam for the rest (Jordan et al. 2024)."""

    type: Literal["muon"] = "muon"
    momentum: Probability = Field(0.95, description="decay rate of the matrices' momentum")


Optimizer = OneOf[Adam | Muon]


class InverseSquareRoot(Section):
    """Linear warm-up to the peak, then peak * sqrt(warmup / update) (fairseq's inverse_sqrt)."""

    type: Literal["inverse_square_root"] = "inverse_square_root"
    lr: Positive = Field(7e-4, description="peak learning rate")
    warmup_updates: Count = Field(4000, description="updates until the peak")
    warmup_init_lr: NotNegative = Field(1e-7, description="learning rate of the first update")


class Noam(Section):
    """scale * d^-0.5 * min(update^-0.5, update * warmup^-1.5) (Vaswani et al. 2017, Eq. 3)."""

    type: Literal["noam"] = "noam"
    scale: Positive = Field(1.0, description="multiplies the schedule")
    warmup_updates: Count = Field(4000, description="updates until the peak")


class Linear(Section):
    """Linear warm-up to the peak, then linearly down to zero after training.max_updates.

    With `max_updates: auto` a warm-up of more than half of all updates ends there, below the peak.
    """

    type: Literal["linear"] = "linear"
    lr: Positive = Field(7e-4, description="peak learning rate")
    warmup_updates: Count = Field(4000, description="updates until the peak")


Schedule = OneOf[InverseSquareRoot | Noam | Linear]


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
        description="padded tokens that one device processes at once; changes no update; by "
        "default a group, or on a GPU the whole update",
    )

    def limit(self, *, rows: bool) -> int:
        """The value of `max_tokens`; `rows`: whether batches are rows without padding."""
        return self.max_tokens or (self.tokens_per_update if rows else self.group_tokens)


class Validation(Section):
    """Validations during training, and the choice of the best checkpoint."""

    every: Count = Field(1000, description="updates between validations")
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

    every: Count = Field(1000, description="updates between checkpoints")
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


class Frozen(Section):
    """Parts of the model that are not trained."""

    encoder: CountOrZero | Literal["all"] = Field(
        0, description="number of bottom encoder layers to freeze; all: the whole stack"
    )
    decoder: CountOrZero | Literal["all"] = Field(
        0, description="number of bottom decoder layers to freeze; all: the whole stack"
    )
    embeddings: bool = Field(
        False, description="freeze the embeddings and the output matrix", exclude_if=is_absent
    )

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
        raise ValueError("must be weights by corpus, or a temperature alone")
    return mixture


Mixture = Annotated[
    dict[Name, Positive], AfterValidator(_check_mixture), Field(exclude_if=is_absent)
]


class Stage(Section):
    """A part of a training; null: as in the whole recipe."""

    encoder: Depth | None = Field(None, description="encoder layers of this stage")
    decoder: Depth | None = Field(None, description="decoder layers of this stage")
    updates: Count | None = Field(None, description="length of this stage, in updates")
    epochs: Count | None = Field(None, description="length of this stage, in epochs")
    epochs_of: Name | None = Field(
        None,
        description="the training corpus whose epochs are counted; null: the first one",
        exclude_if=is_absent,
    )
    mixture: Mixture = Field(
        {}, description="as training.mixture, for this stage and those after it"
    )
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


class Growth(Section):
    """The growth of a model from one stage to the next."""

    strategy: Strategy = Field(
        "copy_top_group",
        description="where new layers come from; copy_top_group: the topmost, in order; "
        "copy_top_layer: the topmost one, repeated; interpolate: each new layer follows the one "
        "that it copies; stack_all: the whole stack again; random: new initial values",
    )
    restart_lr: bool = Field(
        True, description="true: each stage restarts the schedule at its peak; false: it continues"
    )


class NoRegularizer(Section):
    """The loss alone."""

    type: Literal["none"] = "none"


class InterSimilarity(Section):
    """weight x sum over encoder layers of (1 - inter-similarity) (Li et al. 2020, Reg-6L)."""

    type: Literal["inter_similarity"] = "inter_similarity"
    weight: Positive = Field(1.0, description="times the loss of a target token")


Regularizer = OneOf[NoRegularizer | InterSimilarity]


LoggerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]
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
    mixture: Mixture = Field(
        {},
        description="weights of the training corpora by name, or {temperature: T} for "
        "size^(1/T); empty: each in proportion to its size",
    )
    start_from: StartFrom | None = Field(
        None,
        description="the weights to start from (`--from`); null: initial values",
        exclude_if=is_absent,
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
    clip_norm: NotNegative = Field(0.0, description="largest gradient norm; 0: no clipping")
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = Field(
        "auto", description="auto: bf16 where the device computes it natively, else fp32"
    )
    checkpoint_activations: Literal["none", "layers"] = Field(
        "none",
        description="layers: keep only the input of each layer and recompute the rest in the "
        "backward pass; less memory, more time, the same gradients",
    )
    sharding: Literal["none", "full"] = Field(
        "none",
        description="full: shard parameters, gradients and moments over all processes (FSDP2)",
    )
    validation: Validation = Validation()
    checkpoints: Checkpoints = Checkpoints()
    log_every: Count = Field(100, description="updates between log lines")
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
        whole = "sharding: full cannot be combined with"
        if self.sharding == "full" and self.optimizer.type == "muon":
            what = f"{whole} muon, which needs whole matrices"
            raise ConflictError(what, "sharding", "optimizer", hint="set optimizer: adam")
        if self.sharding == "full" and self.precision == "fp16":
            what = f"{whole} fp16, whose loss scale is a decision of one process"
            raise ConflictError(what, "sharding", "precision", hint="set precision: bf16")
        if self.sharding == "full" and self.stages:
            what = f"{whole} stages, since a model that grows must be whole"
            raise ConflictError(what, "sharding", "stages", hint="leave out stages")
        return self
