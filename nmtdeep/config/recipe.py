"""A whole recipe: text, model, training, decoding, and where it comes from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from nmtdeep.config.model import Model
from nmtdeep.config.section import Beam, Count, CountOrZero, NotNegative, Section
from nmtdeep.config.stages import at_stage, check_stages
from nmtdeep.config.text import NoBpe, Text
from nmtdeep.config.training import Training


class Decoding(Section):
    """Defaults of `translate`; each has a flag there."""

    beam: Beam = Field(4, description="beam size")
    lenpen: NotNegative = Field(0.6, description="length penalty A")
    lenpen_form: Literal["gnmt", "length", "none"] = Field(
        "length", description="gnmt: ((5+len)/6)^A; length: len^A; none: plain sum"
    )
    max_length_factor: NotNegative = Field(1.5, description="a of a * source + b tokens at most")
    max_length_constant: CountOrZero = Field(20, description="b of a * source + b tokens at most")
    max_source_tokens: Count = Field(400, description="longer source lines are split or truncated")


class Reference(Section):
    """Where a recipe comes from and what is expected of it."""

    paper: str = Field("", description="citation")
    table: str = Field("", description="table of that paper")
    row: str = Field("", description="row of that table")
    scores: dict[str, float] = Field(default_factory=dict, description="published scores by name")
    parameters: str = Field("", description="published parameter count, as printed")
    note: str = Field("", description="anything a reader must know")


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
            raise ValueError(
                "model.embeddings.sharing: all needs one vocabulary: set text.vocabulary.sharing: "
                "shared, or model.embeddings.sharing: decoder"
            )
        if self.text.input == "bpe" and not isinstance(self.text.bpe, NoBpe):
            raise ValueError("text.input: bpe is split already: set text.bpe: none")
        check_stages(self.model, self.training)
        return self

    def at_stage(self, number: int) -> Recipe:
        """What is trained in one stage, counted from 0; the recipe itself if it has none."""
        if not self.training.stages:
            return self
        model, training = at_stage(self.model, self.training, number)
        return self.model_copy(update={"model": model, "training": training})
