"""Options for translating, declared once: for recipes, commands, validation and `nmtdeep.load`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from nmtdeep.config.section import KIWI, MBR, Beam, Bool, Count, CountOrZero, Section
from nmtdeep.config.text import Form
from nmtdeep.config.values import validated
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.config.recipe import Recipe

# With these bounds no penalty, length or softmax overflows, whatever the text.
Exponent = Annotated[float, Field(ge=0, le=10, strict=True)]
LengthFactor = Annotated[float, Field(ge=0, le=1000, strict=True)]
LengthConstant = Annotated[int, Field(ge=0, le=100_000, strict=True)]
Temperature = Annotated[float, Field(ge=0.001, le=1000, strict=True)]
Workers = Annotated[int, Field(gt=0, le=1024, strict=True)]
Precision = Literal["auto", "fp32", "bf16", "fp16"]


class Decoding(Section):
    """Defaults of `translate`, where each has a flag; `DecodingOptions` adds the other options."""

    beam: Beam = Field(4, description="beam size")
    lenpen: Exponent = Field(0.6, description="exponent A of the length penalty")
    lenpen_form: Literal["gnmt", "length", "none"] = Field(
        "length",
        description="formula of the length penalty; gnmt: ((5+len)/6)^A, length: len^A, none: 1",
    )
    stop: Literal["full", "bound"] = Field(
        "full",
        description="end of a search; full: as soon as `beam` translations have ended; bound: only "
        "when the best unfinished one scores no better now than each of them, as in transformers",
    )
    max_length_factor: LengthFactor = Field(
        1.5, description="factor A of the longest translation, A * source + B subwords"
    )
    max_length_constant: LengthConstant = Field(
        20, description="constant B of the longest translation, A * source + B subwords"
    )
    max_source_tokens: Count = Field(
        400, description="longest source line, in subwords; longer ones are split or truncated"
    )
    allow_unk: Bool = Field(False, description="allow <unk> in translations")


class DecodingOptions(Decoding):
    """All options for translating; those that are omitted have the recipe's values."""

    n_best: Beam = Field(1, description="number of translations of each line")
    input_is: Form = Field("raw", description="form of the input: raw text, words or subwords")
    source_tag: str | None = Field(
        None, description="token before each source line, such as that of a corpus in text.tags"
    )
    prefix_column: Bool = Field(
        False, description="a line is source<TAB>prefix; its translation starts with the prefix"
    )
    output_is: Form = Field("raw", description="form of the output: raw text, words or subwords")
    long_lines: Literal["split", "truncate", "error"] = Field(
        "split", description="translate an over-long line in pieces, cut it, or refuse it"
    )
    sampling: Bool = Field(False, description="draw translations at random instead of searching")
    temperature: Temperature = Field(1.0, description="softmax temperature for sampling")
    top_k: CountOrZero = Field(0, description="most probable tokens to sample from; 0: all")
    top_p: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(
        1.0, description="total probability of the most probable tokens to sample from"
    )
    epsilon: Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(
        0.0, description="tokens of a lower probability are not sampled, but the best one always is"
    )
    mbr: Annotated[str, Field(pattern=MBR)] | None = Field(
        None,
        description="choose the sample that is nearest to all others of those that are drawn "
        "(minimum Bayes risk): by chrf (extra `mbr`), or by comet:MODEL, which scores each against "
        "each, N x N pairs a line for N samples",
    )
    rerank: Annotated[str, Field(pattern=KIWI)] | None = Field(
        None,
        description="choose among all translations of the beam, or with --sampling among the "
        "samples, by comet-kiwi:MODEL, a COMET model that needs no reference",
    )
    samples: Annotated[int, Field(ge=2, le=4096, strict=True)] = Field(
        64, description="number of samples to choose among"
    )
    seed: CountOrZero = Field(1, description="random seed for sampling")
    device: str = Field("auto", description="device: auto, cpu, cuda or cuda:N")
    precision: Precision = Field("auto", description="number format of the weights; auto: fp32")
    quantize: Literal["int8"] | None = Field(
        None, description="store the weights as 8-bit integers (CPU only)"
    )
    max_tokens: Count | None = Field(
        None, description="batch size: padded source tokens times beam; default: by device and beam"
    )
    threads: Workers | None = Field(None, description="number of CPU threads")
    processes: Workers = Field(1, description="number of processes: one per GPU or CPU thread")

    @model_validator(mode="before")
    @classmethod
    def _mbr_samples(cls, values: Any) -> Any:
        """Choosing among samples needs them to be drawn."""
        if isinstance(values, dict) and values.get("mbr"):
            return values | {"sampling": True}
        return values

    @property
    def drawn(self) -> int:
        """Number of samples of each line, or of translations of its beam."""
        if self.rerank and not self.sampling:
            return self.beam
        return self.samples if self.mbr or self.rerank else self.n_best

    def with_recipe(self, recipe: Recipe) -> DecodingOptions:
        """These options, with the recipe's values for omitted ones that it has."""
        chosen = self.model_dump(exclude_unset=True)
        values = recipe.decoding.model_dump() | {"input_is": recipe.text.input} | chosen
        if not self.sampling:
            values["beam"] = max(values["beam"], self.n_best)
        return DecodingOptions(**values)


RECIPE_DEFAULTS = DecodingOptions()
# Options that samples do not have, and those that a search does not have.
OF_SEARCH = {"beam", "lenpen", "lenpen_form", "stop"}
OF_SAMPLING = {"temperature", "top_k", "top_p", "epsilon", "samples"}


def decoding_options(
    given: Mapping[str, Any], spelled: Callable[[str], str] = str
) -> DecodingOptions:
    """As `validated`.

    Raises:
        UserError: if an option is unknown, has no such value, or contradicts another one.
    """
    options = validated(DecodingOptions, given, spelled)
    narrow = "beam" in options.model_fields_set and options.beam < options.n_best
    if narrow and not options.sampling:
        what = f"{options.n_best} translations need a beam at least as large, not {options.beam}"
        raise UserError(what, where=spelled("n_best"), hint=f"raise {spelled('beam')}")
    if options.mbr and options.rerank:
        what, hint = f"cannot be combined with {spelled('mbr')}", "leave one of them out"
        raise UserError(what, where=spelled("rerank"), hint=hint)
    chooses = options.mbr or options.rerank
    if options.sampling and chooses and options.n_best > options.samples:
        what = f"{options.n_best} translations need as many samples, not {options.samples}"
        raise UserError(what, where=spelled("n_best"), hint=f"raise {spelled('samples')}")
    if options.sampling and not chooses and "samples" in options.model_fields_set:
        what = f"has no effect without {spelled('mbr')} or {spelled('rerank')}"
        raise UserError(what, where=spelled("samples"), hint="add one, or leave this one out")
    what, hint = f"has no effect without {spelled('sampling')}", "add it, or leave this one out"
    if options.sampling:
        what, hint = "has no effect on samples", "leave it out"
    for name in sorted((OF_SEARCH if options.sampling else OF_SAMPLING) & options.model_fields_set):
        raise UserError(what, where=spelled(name), hint=hint)
    if options.processes > 1 and options.threads:
        what, hint = "each of several processes has one thread", f"leave out {spelled('threads')}"
        raise UserError(what, where=spelled("processes"), hint=hint)
    return options
