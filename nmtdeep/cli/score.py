"""`nmtdeep score`: scores with signatures, of files or of what a model translates."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmtdeep.cli import completion
from nmtdeep.cli.choices import Device, InputForm, Precision, Verbose
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.scoring.report import Report
    from nmtdeep.scoring.texts import Texts
    from nmtdeep.scoring.tokenized import MosesPreparation


MODEL, COMPARISON = "A model", "Comparison"


class Paired(StrEnum):
    """How two systems are tested against one another."""

    BOOTSTRAP = "bootstrap"
    RANDOMIZATION = "randomization"


Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="HYP REF",
        help="The hypotheses (- for stdin), then one reference or more; .gz allowed.",
        show_default=False,
    ),
]
Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        help="Run or checkpoint that translates --source; several are an ensemble.",
        rich_help_panel=MODEL,
    ),
]
Source = Annotated[
    Path | None,
    typer.Option(
        help="Text that --model translates, or whose lengths make the --buckets.",
        rich_help_panel=MODEL,
    ),
]
References = Annotated[
    list[Path] | None,
    typer.Option(help="With --model: a reference translation of --source.", rich_help_panel=MODEL),
]
Target = Annotated[
    Path | None,
    typer.Option(help="With --log-prob: translations of --source.", rich_help_panel=MODEL),
]
LogProb = Annotated[
    bool,
    typer.Option(
        "--log-prob",
        help="The model's log-probability of each --target line: sum, tokens, sum per token.",
        rich_help_panel=MODEL,
    ),
]
InputIs = Annotated[
    InputForm | None,
    typer.Option(help="The files are already tokenized or split.", rich_help_panel=MODEL),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help=f"Metric: {', '.join(completion.METRICS)}.",
        autocompletion=completion.metrics,
        show_default="bleu, chrf and ter",
    ),
]
Systems = Annotated[
    list[Path] | None,
    typer.Option(
        "--system",
        help="Hypotheses of another system, compared with the first.",
        rich_help_panel=COMPARISON,
    ),
]
PairedTest = Annotated[
    Paired,
    typer.Option("--paired", help="Significance test of --system.", rich_help_panel=COMPARISON),
]
Trials = Annotated[
    int,
    typer.Option(min=1, help="Number of samples that --paired draws.", rich_help_panel=COMPARISON),
]
Seed = Annotated[
    int, typer.Option(min=1, help="Random seed of --paired.", rich_help_panel=COMPARISON)
]
Buckets = Annotated[
    bool, typer.Option("--buckets", help="Scores by reference length too: 1-10, 11-20, ... words.")
]
Tokenize = Annotated[
    str | None,
    typer.Option(
        metavar="LANG",
        help="Moses-tokenize both sides for bleu-tok, bleu-tok-lc and bleu-compound.",
    ),
]
ReplacePunctuation = Annotated[
    bool,
    typer.Option(
        "--replace-unicode-punctuation",
        help="Before --tokenize, as the DLCL and SDT papers' En-De script does.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON list with all results.")]
DeviceOption = Annotated[
    Device, typer.Option("--device", help="Where the model runs.", rich_help_panel=MODEL)
]
PrecisionOption = Annotated[
    Precision, typer.Option("--precision", help="Number format.", rich_help_panel=MODEL)
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Number of CPU threads.", rich_help_panel=MODEL)
]


def score(
    *,
    files: Files = None,
    model: Models = None,
    source: Source = None,
    reference: References = None,
    target: Target = None,
    log_prob: LogProb = False,
    input_is: InputIs = None,
    metric: Metrics = None,
    system: Systems = None,
    paired: PairedTest = Paired.BOOTSTRAP,
    trials: Trials = 1000,
    seed: Seed = 12345,
    buckets: Buckets = False,
    tokenize: Tokenize = None,
    replace_unicode_punctuation: ReplacePunctuation = False,
    as_json: Json = False,
    device: DeviceOption = Device.AUTO,
    precision: PrecisionOption = Precision.AUTO,
    threads: Threads = None,
    verbose: Verbose = False,
) -> None:
    """Score translations: BLEU in the kinds that papers report, chrF and TER, with signatures.

    Files: nmtdeep score HYP REF

    What a model translates: nmtdeep score -m RUN --source S --reference R

    What a model thinks of a translation: nmtdeep score -m RUN --source S --target T --log-prob
    """
    given = {
        "HYP and REF": files,
        "--model": model,
        "--source": source,
        "--reference": reference,
        "--target": target,
        "--log-prob": log_prob,
        "--input-is": input_is,
        "--metric": metric,
        "--system": system,
        "--buckets": buckets,
        "--tokenize": tokenize,
        "--replace-unicode-punctuation": replace_unicode_punctuation,
    }
    _refuse_contradictions({name for name, value in given.items() if value}, files or [])
    load = partial(
        _load, model or [], input_is, device=device, precision=precision, threads=threads
    )
    if source and target:
        _print_log_probabilities(load, source, target, as_json=as_json)
        return

    from nmtdeep.scoring.metrics import DEFAULT_METRICS

    metrics = list(dict.fromkeys(metric or DEFAULT_METRICS))
    preparation = _preparation(metrics, tokenize, replace_unicode_punctuation)
    paths = [source, *(reference or [])] if model and source else files or []
    texts = _texts(paths, system or [], source, model or [], load)
    report = _measure(
        texts, metrics, preparation, test=paired, trials=trials, seed=seed, buckets=buckets
    )
    _print(report, as_json=as_json)


_PREPARATION = {"--tokenize", "--replace-unicode-punctuation"}


def _refuse_contradictions(given: set[str], files: Sequence[Path]) -> None:
    if "--model" in given:
        needed = "--target" if "--log-prob" in given else "--reference"
        missing = [name for name in ("--source", needed) if name not in given]
        if missing:
            raise UserError(f"--model also needs {' and '.join(missing)} FILE")
        allowed = {"--model", "--source", "--input-is", needed}
        if needed == "--target":
            allowed |= {"--log-prob"}
        else:
            allowed |= {"--metric", "--system", "--buckets"} | _PREPARATION
        if extra := sorted(given - allowed):
            raise UserError(f"{', '.join(extra)} cannot go with --model and {needed}; leave it out")
    else:
        if extra := sorted(given & {"--reference", "--target", "--log-prob", "--input-is"}):
            raise UserError(f"{', '.join(extra)} needs a model: add --model RUN")
        if len(files) < 2:
            raise UserError("nothing to score against: give HYP and REF, or --model RUN --source S")
        if "--source" in given and "--buckets" not in given:
            raise UserError("--source without --model only serves --buckets; add it")
    if "--replace-unicode-punctuation" in given and "--tokenize" not in given:
        raise UserError("--replace-unicode-punctuation comes before --tokenize LANG; add that")


def _preparation(
    metrics: Sequence[str], language: str | None, replace_punctuation: bool
) -> MosesPreparation | None:
    from nmtdeep.scoring.metrics import metric_named
    from nmtdeep.scoring.tokenized import MosesPreparation

    wants_tokens = [metric_named(name).tokens for name in metrics]
    if language is None:
        return None
    if not any(wants_tokens):
        raise UserError(
            "--tokenize only changes bleu-tok, bleu-tok-lc and bleu-compound; add --metric bleu-tok"
        )
    return MosesPreparation(language, replace_punctuation=replace_punctuation)


def _texts(
    files: Sequence[Path],
    systems: Sequence[Path],
    source: Path | None,
    models: Sequence[Path],
    load: Callable[[], Translator],
) -> Texts:
    """Read every file, then, with models, put the translations in the place of the first."""
    from nmtdeep.scoring.texts import Text, read_texts

    if not models:
        return read_texts(files[0], files[1:], systems, source)
    texts = read_texts(files[0], files[1:], systems, None)
    translations = load().translate(texts.hypotheses.lines)
    hypotheses = Text("+".join(map(str, models)), [one.text for one in translations])
    return replace(texts, hypotheses=hypotheses, source=texts.hypotheses)


def _measure(
    texts: Texts,
    metrics: list[str],
    preparation: MosesPreparation | None,
    *,
    test: Paired,
    trials: int,
    seed: int,
    buckets: bool,
) -> Report:
    from nmtdeep.scoring.report import measure
    from nmtdeep.scoring.significance import PairedOptions
    from nmtdeep.scoring.warnings import warnings

    for warning in warnings(texts, metrics, prepared=preparation is not None):
        typer.echo(f"nmtdeep: warning: {warning}", err=True)
    paired = PairedOptions(test=test.value, trials=trials, seed=seed)
    return measure(texts, metrics, preparation=preparation, paired=paired, buckets=buckets)


def _print(report: Report, *, as_json: bool) -> None:
    from nmtdeep.scoring.rendering import plain_lines, records, signatures, tables

    if as_json:
        typer.echo(json.dumps(records(report), ensure_ascii=False, indent=1))
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        for table in tables(report):
            console.print(table)
        for signature in signatures(report):
            typer.echo(signature)
    else:
        for line in plain_lines(report):
            typer.echo(line)


def _load(
    models: Sequence[Path],
    form: InputForm | None,
    *,
    device: Device,
    precision: Precision,
    threads: int | None,
) -> Translator:
    from nmtdeep.decoding.translator import Translator

    chosen: dict[str, Any] = {"input_form": form.value} if form else {}
    return Translator.load(
        list(models),
        **chosen,
        device=device.value,
        precision=precision.value,
        threads=threads,
    )


def _print_log_probabilities(
    load: Callable[[], Translator], source: Path, target: Path, *, as_json: bool
) -> None:
    """Sum, number and mean of each line's log-probabilities; the whole text's on stderr."""
    from nmtdeep.decoding.forced import log_probabilities
    from nmtdeep.scoring.texts import read_texts

    texts = read_texts(source, [target], [], None)
    sources, targets = texts.hypotheses.lines, texts.references[0].lines
    rows: list[dict[str, Any]] = []
    for forced in log_probabilities(load(), sources, targets):
        length, mean = len(forced.tokens), forced.log_prob / len(forced.tokens)
        row = {"log_prob": forced.log_prob, "tokens": length, "per_token": mean}
        rows.append(row | {"each": forced.tokens})
        if not as_json:
            typer.echo(f"{forced.log_prob:.4f}\t{length}\t{mean:.4f}")
    if as_json:
        typer.echo(json.dumps(rows))
    every = [token for row in rows for token in row["each"]]
    total = math.fsum(every)
    typer.echo(
        f"{len(rows)} sentences, {len(every)} tokens, log-probability {total:.2f}, "
        f"perplexity {math.exp(-total / len(every)):.3f}",
        err=True,
    )
