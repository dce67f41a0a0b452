"""From what a user asks of a translation to a `Translator`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from nmtdeep.checkpoint import load
from nmtdeep.config.problems import value_problem
from nmtdeep.config.section import Count, CountOrZero, NotNegative, Positive, Section, choices_of
from nmtdeep.decoding.settings import Quantization, Sampling, settings_of
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import Problem, UserError
from nmtdeep.text.pipeline import Form


class Options(Section):
    """How to translate, under the names and with the defaults of `nmtdeep translate`.

    Attributes:
        beam, lenpen, lenpen_form, input_is, max_source_tokens: None: as the recipe says.
        max_length_factor, max_length_constant: a translation has at most factor times the source's
            subwords plus constant subwords; None: as the recipe says.
        max_tokens: padded source tokens times beam that go through the model at once.
        temperature, top_k, top_p, seed: of `sampling`.
        threads: of torch on a CPU, for all of this process; None: as it stands.
        processes: that share the work on a CPU, one thread each.
    """

    beam: Count | None = None
    lenpen: NotNegative | None = None
    lenpen_form: Literal["gnmt", "length", "none"] | None = None
    n_best: Count = 1
    input_is: Form | None = None
    output_is: Form = "raw"
    sampling: bool = False
    temperature: Positive = 1.0
    top_k: CountOrZero = 0
    top_p: Annotated[float, Field(gt=0, le=1, strict=True)] = 1.0
    seed: CountOrZero = 1
    long_lines: Literal["split", "truncate", "error"] = "split"
    max_source_tokens: Count | None = None
    max_length_factor: NotNegative | None = None
    max_length_constant: Count | None = None
    max_tokens: Count = 4096
    device: str = "auto"
    precision: str = "auto"
    quantize: Quantization | None = None
    threads: Count | None = None
    processes: Count = 1


def options_of(**asked: Any) -> Options:
    """Checked options.

    Raises:
        UserError: a line for each that is unknown or has no such value, or that do not go together.
    """
    try:
        options = Options(**asked)
    except ValidationError as error:
        raise UserError(problems=map(_problem, error.errors(include_url=False))) from None
    if options.n_best > (options.beam or options.n_best) and not options.sampling:
        raise UserError(f"--n-best {options.n_best} needs a beam at least as large: raise --beam")
    if options.processes > 1 and options.threads:
        raise UserError("each of several processes has one thread: leave out --threads")
    return options


def _problem(detail: Any) -> Problem:
    name = str(detail["loc"][0])
    field = Options.model_fields.get(name)
    problem = value_problem(detail, choices_of(field.annotation) if field else ())
    hint = problem.hint or "give another value, or leave it out"
    return Problem(f"{name} {problem.what}", hint=hint)


def open_translator(models: Sequence[Path], options: Options) -> Translator:
    """Read one run or checkpoint, or several as an ensemble; a recipe's defaults are the first's.

    Raises:
        CheckpointError: if one cannot be read or their vocabularies differ.
        UserError: if device, precision and quantization are not to be had here.
    """
    loaded = [load(path) for path in models]
    chosen: dict[str, Any] = {
        "beam": options.beam,
        "lenpen": options.lenpen,
        "lenpen_form": options.lenpen_form,
        "input_form": options.input_is,
        "max_source_tokens": options.max_source_tokens,
        "max_length_factor": options.max_length_factor,
        "max_length_constant": options.max_length_constant,
    }
    drawing = Sampling(options.temperature, options.top_k, options.top_p, options.seed)
    settings = replace(
        settings_of(loaded[0]),
        n_best=options.n_best,
        long_lines=options.long_lines,
        batch_tokens=options.max_tokens,
        sampling=drawing if options.sampling else None,
        **{name: value for name, value in chosen.items() if value is not None},
    )
    if options.n_best > settings.beam and not options.sampling:
        settings = replace(settings, beam=options.n_best)
    return Translator.of(
        loaded,
        settings,
        device=options.device,
        precision=options.precision,
        quantize=options.quantize,
        threads=options.threads,
        processes=options.processes,
    )
