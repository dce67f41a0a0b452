"""`nmtdeep score`: scores with signatures, of files or of what a model translates."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nmtdeep.cli import completion
from nmtdeep.cli.options import decoding
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.scoring.report import Report
    from nmtdeep.scoring.texts import Texts
    from nmtdeep.scoring.tokenized import MosesPreparation

MODEL, COMPARISON = "With a model", "Comparison"
OF_SEARCHES = ("n_best", "output_is", "sampling", "temperature", "top_k", "top_p", "seed")


@decoding(*OF_SEARCHES)
def score(
    *,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="HYP REF",
            help="The hypotheses (- for stdin), then one reference or more; .gz allowed.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Metric: {', '.join(completion.METRICS)}.",
            autocompletion=completion.metrics,
            show_default="bleu, chrf and ter",
        ),
    ] = None,
    buckets: Annotated[
        bool, typer.Option("--buckets", help="Also score by length: 1-10, 11-20, ... words.")
    ] = False,
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="LANG",
            help="Moses-tokenize both sides for bleu-tok, bleu-tok-lc and bleu-compound.",
        ),
    ] = None,
    replace_unicode_punctuation: Annotated[
        bool,
        typer.Option(
            "--replace-unicode-punctuation",
            help="Replace Unicode punctuation before --tokenize, as the DLCL and SDT papers do.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all results as a JSON list.")
    ] = False,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "-m",
            "--model",
            help="Run or checkpoint that translates --source; several are an ensemble.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            help="Source text: translated by --model; its line lengths define --buckets.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(help="Reference translation of --source.", rich_help_panel=MODEL),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(help="Translations of --source for --log-prob.", rich_help_panel=MODEL),
    ] = None,
    log_prob: Annotated[
        bool,
        typer.Option(
            "--log-prob",
            help="Print the model's log-probability of each line of --target: sum, number of "
            "tokens, mean.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    system: Annotated[
        list[Path] | None,
        typer.Option(
            help="Hypotheses of another system, compared with the first.",
            rich_help_panel=COMPARISON,
        ),
    ] = None,
    paired: Annotated[
        Literal["bootstrap", "randomization"],
        typer.Option(help="Significance test for --system.", rich_help_panel=COMPARISON),
    ] = "bootstrap",
    trials: Annotated[
        int,
        typer.Option(min=1, help="Number of samples for --paired.", rich_help_panel=COMPARISON),
    ] = 1000,
    seed: Annotated[
        int, typer.Option(min=1, help="Random seed for --paired.", rich_help_panel=COMPARISON)
    ] = 12345,
    options: DecodingOptions,
) -> None:
    """Score translations: BLEU in the kinds that papers report, chrF and TER, with signatures.

    Files: nmtdeep score HYP REF

    What a model translates: nmtdeep score -m RUN --source S --reference R

    Log-probabilities of translations: nmtdeep score -m RUN --source S --target T --log-prob
    """
    given = {
        "HYP and REF": files,
        "--model": model,
        "--source": source,
        "--reference": reference,
        "--target": target,
        "--log-prob": log_prob,
        "--metric": metric,
        "--system": system,
        "--buckets": buckets,
        "--tokenize": tokenize,
        "--replace-unicode-punctuation": replace_unicode_punctuation,
        "options of models": options.model_fields_set,
    }
    _check_combination({name for name, value in given.items() if value}, len(files or ()))
    if model and source and target:
        _print_log_probabilities(model, options, source, target, as_json=as_json)
        return

    from nmtdeep.scoring.metrics import DEFAULT_METRICS
    from nmtdeep.scoring.report import measure
    from nmtdeep.scoring.significance import PairedOptions
    from nmtdeep.scoring.texts import read_texts
    from nmtdeep.scoring.warnings import warnings

    metrics = list(dict.fromkeys(metric or DEFAULT_METRICS))
    preparation = _preparation(metrics, tokenize, replace_unicode_punctuation)
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
        preparation=preparation,
        paired=PairedOptions(test=paired, trials=trials, seed=seed),
        buckets=buckets,
    )
    _print(report, as_json=as_json)


SCORING = {"--metric", "--system", "--buckets", "--tokenize", "--replace-unicode-punctuation"}
WITH_MODEL = {"--model", "--source", "options of models"}


def _check_combination(given: set[str], files: int) -> None:
    """Refuse options that contradict one another, and files that are missing."""
    if "--model" in given:
        needed = "--target" if "--log-prob" in given else "--reference"
        allowed = {needed, "--log-prob"} if "--log-prob" in given else {needed} | SCORING
        missing = [name for name in ("--source", needed) if name not in given]
        if missing:
            raise UserError(f"also needs {' and '.join(missing)} FILE", where="--model")
        if extra := sorted(given - allowed - WITH_MODEL):
            raise UserError(
                f"cannot be combined with --model and {needed}",
                where=", ".join(extra),
                hint="leave it out",
            )
        return
    of_models = {"--reference", "--target", "--log-prob", "options of models"}
    if extra := sorted(given & of_models):
        raise UserError("needs a model", where=", ".join(extra), hint="add --model RUN")
    if files < 2:
        hint = "give HYP and REF, or --model RUN --source S --reference R"
        raise UserError("there is nothing to score", hint=hint)
    if "--source" in given and "--buckets" not in given:
        raise UserError("without --model it only serves --buckets", where="--source", hint="add it")
    if "--replace-unicode-punctuation" in given and "--tokenize" not in given:
        where = "--replace-unicode-punctuation"
        raise UserError("only works with --tokenize LANG", where=where, hint="add that")


def _preparation(
    metrics: list[str], language: str | None, replace_punctuation: bool
) -> MosesPreparation | None:
    from nmtdeep.scoring.metrics import metric_named
    from nmtdeep.scoring.tokenized import MosesPreparation

    wants_tokens = [metric_named(name).tokens for name in metrics]
    if language is None:
        return None
    if not any(wants_tokens):
        raise UserError(
            "only changes bleu-tok, bleu-tok-lc and bleu-compound",
            where="--tokenize",
            hint="add --metric bleu-tok",
        )
    return MosesPreparation(language, replace_punctuation=replace_punctuation)


def _translated(texts: Texts, models: list[Path], options: DecodingOptions) -> Texts:
    """The texts with the models' translations of the first one as the hypotheses."""
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.scoring.texts import Text

    source = texts.hypotheses
    with Translator.load(models, options) as translator:
        lines = [each.text for each in translator.translate(source.lines)]
    hypotheses = Text("+".join(map(str, models)), lines)
    return replace(texts, hypotheses=hypotheses, source=source)


def _print(report: Report, *, as_json: bool) -> None:
    from nmtdeep.scoring.rendering import plain_lines, records, signatures, tables

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
