"""`nmtdeep score`: scores with signatures, of files or of what a model translates."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from typer import Argument, Option

from nmtdeep.cli import completion
from nmtdeep.cli.options import decoding
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.scoring.report import Report
    from nmtdeep.scoring.texts import Texts
    from nmtdeep.scoring.tokenized import MosesPreparation

MODEL, COMPARISON = "With a model", "Comparison"
METRICS = f"Metric: {', '.join(completion.METRICS)}."
OF_SEARCHES = ("n_best", "output_is", "sampling", "temperature", "top_k", "top_p", "seed")


@decoding(*OF_SEARCHES)
def score(
    *,
    files: list[Path] | None = Argument(
        None,
        metavar="HYP REF",
        help="The hypotheses (- for stdin), then one reference or more; .gz allowed.",
        show_default=False,
    ),
    metric: list[str] | None = Option(
        None,
        metavar="NAME",
        help=METRICS,
        autocompletion=completion.metrics,
        show_default="bleu, chrf and ter",
    ),
    buckets: bool = Option(
        False, "--buckets", help="Also score by length: 1-10, 11-20, ... words."
    ),
    tokenize: str | None = Option(
        None,
        metavar="LANG",
        help="Moses-tokenize both sides for bleu-tok, bleu-tok-lc and bleu-compound.",
    ),
    replace_unicode_punctuation: bool = Option(
        False,
        "--replace-unicode-punctuation",
        help="Replace Unicode punctuation before --tokenize, as the DLCL and SDT papers do.",
    ),
    as_json: bool = Option(False, "--json", help="Print all results as a JSON list."),
    model: list[Path] | None = Option(
        None,
        "-m",
        "--model",
        help="Run or checkpoint that translates --source; several are an ensemble.",
        rich_help_panel=MODEL,
    ),
    source: Path | None = Option(
        None,
        help="Source text: translated by --model; its line lengths define --buckets.",
        rich_help_panel=MODEL,
    ),
    reference: list[Path] | None = Option(
        None, help="Reference translation of --source.", rich_help_panel=MODEL
    ),
    target: Path | None = Option(
        None, help="Translations of --source for --log-prob.", rich_help_panel=MODEL
    ),
    log_prob: bool = Option(
        False,
        "--log-prob",
        help="Print the model's log-probability of each line of --target: sum, number of "
        "tokens, mean.",
        rich_help_panel=MODEL,
    ),
    system: list[Path] | None = Option(
        None,
        help="Hypotheses of another system, compared with the first.",
        rich_help_panel=COMPARISON,
    ),
    paired: Literal["bootstrap", "randomization"] = Option(
        "bootstrap", help="Significance test for --system.", rich_help_panel=COMPARISON
    ),
    trials: int = Option(
        1000, min=1, help="Number of samples for --paired.", rich_help_panel=COMPARISON
    ),
    seed: int = Option(12345, min=1, help="Random seed for --paired.", rich_help_panel=COMPARISON),
    options: DecodingOptions,
) -> None:
    """Score translations: BLEU in the kinds that papers report, chrF and TER, with signatures.

    Files: nmtdeep score HYP REF

    What a model translates: nmtdeep score -m RUN --source S --reference R

    Log-probabilities of translations: nmtdeep score -m RUN --source S --target T --log-prob
    """
    of_model = {
        "--source": source,
        "--reference": reference,
        "--target": target,
        "--log-prob": log_prob,
        "options of models": options.model_fields_set,
    }
    _check_combination(model, files or [], of_model, buckets=buckets)
    if model and source and target:
        _print_log_probabilities(model, options, source, target, as_json=as_json)
        return

    from nmtdeep.scoring.metrics import DEFAULT_METRICS
    from nmtdeep.scoring.report import measure
    from nmtdeep.scoring.texts import read_texts
    from nmtdeep.scoring.warnings import warnings

    metrics = list(dict.fromkeys(metric or DEFAULT_METRICS))
    preparation = _preparation(metrics, tokenize, replace_punctuation=replace_unicode_punctuation)
    if model and source:
        texts = read_texts(source, reference or [], system or [], None)
        texts = _translated(texts, model, options)
    else:
        hypotheses, *references = files or []
        texts = read_texts(hypotheses, references, system or [], source)
    for warning in warnings(texts, metrics, prepared=preparation is not None):
        typer.echo(f"nmtdeep: warning: {warning}", err=True)
    report = measure(
        texts,
        metrics,
        buckets=buckets,
        preparation=preparation,
        test=paired,
        trials=trials,
        seed=seed,
    )
    _print(report, as_json=as_json)


def _check_combination(
    model: object, files: Sequence[Path], of_model: Mapping[str, object], *, buckets: bool
) -> None:
    """Refuse what is neither of the three uses."""
    given = {name for name, value in of_model.items() if value}
    if model:
        needed = {"--source", "--target" if "--log-prob" in given else "--reference"}
        if missing := sorted(needed - given):
            raise UserError(f"also needs {' and '.join(missing)} FILE", where="--model")
        extra = sorted(given & {"--reference", "--target"} - needed) + ["HYP and REF"] * bool(files)
        if extra:
            what = f"cannot be combined with --model and {' and '.join(sorted(needed))}"
            raise UserError(what, where=", ".join(extra), hint="leave it out")
        return
    allowed = {"--source"} if buckets else set()
    if extra := sorted(given - allowed):
        raise UserError("needs a model", where=", ".join(extra), hint="add --model RUN")
    if len(files) < 2:
        hint = "give HYP and REF, or --model RUN --source S --reference R"
        raise UserError("there is nothing to score", hint=hint)


def _preparation(
    metrics: list[str], language: str | None, *, replace_punctuation: bool
) -> MosesPreparation | None:
    from nmtdeep.scoring.metrics import metric_named
    from nmtdeep.scoring.tokenized import MosesPreparation

    wants_tokens = [metric_named(name).tokens for name in metrics]
    if language is None:
        if replace_punctuation:
            where = "--replace-unicode-punctuation"
            raise UserError("needs --tokenize", where=where, hint="add --tokenize LANG")
        return None
    if not any(wants_tokens):
        what = "only changes bleu-tok, bleu-tok-lc and bleu-compound"
        raise UserError(what, where="--tokenize", hint="add --metric bleu-tok")
    return MosesPreparation(language, replace_punctuation=replace_punctuation)


def _translated(texts: Texts, models: list[Path], options: DecodingOptions) -> Texts:
    """The texts with the models' translations of the first one as the hypotheses."""
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.scoring.texts import NamedText

    source = texts.hypotheses
    with Translator.load(models, options) as translator:
        lines = [each.text for each in translator.translate(source.lines)]
    hypotheses = NamedText("+".join(map(str, models)), lines)
    return replace(texts, hypotheses=hypotheses, source=source)


def _print(report: Report, *, as_json: bool) -> None:
    from nmtdeep.scoring.report import plain_lines, records, signatures, tables

    if as_json:
        typer.echo(json.dumps(records(report), ensure_ascii=False, indent=1))
    elif sys.stdout.isatty():
        from rich.console import Console

        for table in tables(report):
            Console().print(table)
        for signature in signatures(report):
            typer.echo(signature)
    else:
        for line in plain_lines(report):
            typer.echo(line)


def _print_log_probabilities(
    models: list[Path], options: DecodingOptions, source: Path, target: Path, *, as_json: bool
) -> None:
    """Sum, number and mean of each line's log-probabilities; those of the whole text on stderr."""
    from nmtdeep.decoding.forced import log_probabilities
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.scoring.texts import read_texts

    texts = read_texts(source, [target], [], None)
    with Translator.load(models, options) as translator:
        pairs = texts.hypotheses.lines, texts.references[0].lines
        found = list(log_probabilities(translator, *pairs))
    rows = [
        {
            "log_prob": forced.log_prob,
            "tokens": len(forced.tokens),
            "per_token": forced.log_prob / len(forced.tokens),
            "each": forced.tokens,
        }
        for forced in found
    ]
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        for row in rows:
            typer.echo("{log_prob:.4f}\t{tokens}\t{per_token:.4f}".format_map(row))
    count, total = (
        sum(len(forced.tokens) for forced in found),
        math.fsum(t for forced in found for t in forced.tokens),
    )
    typer.echo(
        f"{len(rows)} sentences, {count} tokens, log-probability {total:.2f}, "
        f"perplexity {math.exp(-total / count):.3f}",
        err=True,
    )
