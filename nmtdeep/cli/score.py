"""`nmtdeep score`: scores with signatures, of files or of what a model translates."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from nmtdeep.cli.options import COMET_MODEL, METRIC, SAMPLING, decoding
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.scoring.comet import Comet
    from nmtdeep.scoring.texts import Texts
    from nmtdeep.scoring.tokenized import MosesPreparation

OF_SEARCHES = (
    *("n_best", "prefix_column", "output_is", "source_tag"),
    *SAMPLING,
)


def score(
    files: Annotated[list[Path] | None, Argument(metavar="HYP REF")] = None,
    *,
    metric: Annotated[list[str] | None, METRIC] = None,
    comet_model: Annotated[str | None, COMET_MODEL] = None,
    tokenize: Annotated[str | None, Option(metavar="LANG")] = None,
    replace_unicode_punctuation: bool = False,
    as_json: Annotated[bool, Option("--json")] = False,
    model: Annotated[list[Path] | None, Option("-m", "--model")] = None,
    source: Path | None = None,
    reference: list[Path] | None = None,
    target: Path | None = None,
    log_prob: bool = False,
    system: list[Path] | None = None,
    paired: Literal["bootstrap", "randomization"] = "bootstrap",
    trials: Annotated[int, Option(min=1)] = 1000,
    options: Annotated[DecodingOptions, decoding(*OF_SEARCHES)],
) -> None:
    """Score translations: BLEU in the kinds that papers report, chrF and TER, with signatures.

    Files: nmtdeep score HYP REF

    What a model translates: nmtdeep score -m RUN --source S --reference R

    Log-probabilities of translations: nmtdeep score -m RUN --source S --target T --log-prob

    Args:
        files: The hypotheses (- for stdin), then one reference or more; .gz allowed.
        metric: Metric: bleu, bleu-lc, bleu-intl, bleu-intl-lc, bleu-zh, bleu-ja, bleu-ko,
            bleu-char, bleu-flores200 (downloads a model), bleu-tok, bleu-tok-lc, bleu-compound,
            chrf, chrf++, ter, comet. Default: bleu, chrf and ter, or those of the --model's run.
        comet_model: COMET model on this machine, for --metric comet with --source. Default:
            Unbabel/wmt22-comet-da.
        tokenize: Moses-tokenize both sides for bleu-tok, bleu-tok-lc and bleu-compound.
        replace_unicode_punctuation: Replace Unicode punctuation before --tokenize, as the DLCL and
            SDT papers do.
        as_json: Print all numbers as JSON.
        model: Run or checkpoint that translates --source; several are an ensemble.
        source: Source text for --model or --metric comet.
        reference: Reference translation of --source.
        target: Translations of --source for --log-prob.
        log_prob: Print the model's log-probability of each line of --target: sum, number of tokens,
            mean.
        system: Hypotheses of another system, compared with the first.
        paired: Significance test for --system.
        trials: Number of samples for --paired.
    """
    of_model = {
        "--source": source,
        "--reference": reference,
        "--target": target,
        "--log-prob": log_prob,
        "options of models": options.model_fields_set,
    }
    # COMET reads the source, and its model computes on --device.
    free = {"--source", "options of models"} if "comet" in (metric or ()) and not model else set()
    _check_use(model, files or [], {name for name, value in of_model.items() if value} - free)
    if model and source and target:
        _print_log_probabilities(model, options, source, target, as_json=as_json)
        return

    from nmtdeep.scoring.metrics import scorers
    from nmtdeep.scoring.report import measure, plain_lines, records
    from nmtdeep.scoring.texts import read_texts
    from nmtdeep.scoring.warnings import warnings
    from nmtdeep.tables import show

    metrics = list(dict.fromkeys(metric or _usual(model)))
    preparation = _preparation(metrics, tokenize, replace_punctuation=replace_unicode_punctuation)
    hypotheses, *references = files or [Path(source or ""), *(reference or [])]
    texts = read_texts(hypotheses, references, system or [])
    texts = _translated(model, options, texts) if model else texts
    for warning in warnings(texts, metrics, prepared=preparation is not None):
        typer.echo(f"nmtdeep: warning: {warning}", err=True)
    comet = _comet(comet_model, source, texts, options.device) if "comet" in metrics else None
    made = scorers(metrics, preparation=preparation, comet=comet)
    rows = measure(texts, made, test=paired, trials=trials)
    if as_json:
        found = records(texts.hypotheses.name, rows)
        typer.echo(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        show("\n".join(plain_lines(rows)))


def _check_use(model: object, files: Sequence[Path], given: Collection[str]) -> None:
    """Refuse files and options, of which `given` are those of a model, that have no use."""
    if not model and given:
        raise UserError("needs a model", where=", ".join(sorted(given)), hint="add --model RUN")
    if not model and len(files) < 2:
        hint = "pass HYP and REF, or --model RUN --source S --reference R"
        raise UserError("there is nothing to score", hint=hint)
    text = "--target" if "--log-prob" in given else "--reference"
    if model and {"--source", text} != {"--source", "--reference", "--target"} & set(given):
        raise UserError(f"takes --source FILE and {text} FILE", where="--model")
    if model and files:
        raise UserError("cannot be combined with HYP and REF", where="--model")


def _usual(models: Sequence[Path] | None) -> Sequence[str]:
    """The metrics that fit the target language of the first model, if there is one."""
    from nmtdeep import checkpoint
    from nmtdeep.config.load import read_config
    from nmtdeep.scoring.metrics import DEFAULT_METRICS, usual_metrics

    if not models:
        return DEFAULT_METRICS
    recipe = read_config(checkpoint.locate(models[0]) / checkpoint.CONFIG)
    return usual_metrics(recipe.text, recipe.training.validation.tokenize)


def _preparation(
    metrics: Sequence[str], language: str | None, *, replace_punctuation: bool
) -> MosesPreparation | None:
    from nmtdeep.scoring.metrics import metric_named
    from nmtdeep.scoring.tokenized import MosesPreparation

    counts_tokens = [metric_named(name).tokens for name in metrics]
    if language and not any(counts_tokens):
        what = "only changes bleu-tok, bleu-tok-lc and bleu-compound"
        raise UserError(what, where="--tokenize", hint="add --metric bleu-tok")
    if replace_punctuation and not language:
        where = "--replace-unicode-punctuation"
        raise UserError("needs --tokenize", where=where, hint="add --tokenize LANG")
    return MosesPreparation(language, replace_punctuation=replace_punctuation) if language else None


def _translated(models: list[Path], options: DecodingOptions, texts: Texts) -> Texts:
    """The texts whose hypotheses are translations of the lines that were in their place."""
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.scoring.texts import NamedText

    with Translator.load(models, options) as translator:
        lines = [each.text for each in translator.translate(texts.hypotheses.lines)]
    return replace(texts, hypotheses=NamedText("+".join(map(str, models)), lines))


def _comet(name: str | None, source: Path | None, texts: Texts, device: str) -> Comet | None:
    if source is None:
        return None
    from nmtdeep.scoring.comet import DEFAULT_MODEL, Comet
    from nmtdeep.scoring.texts import check_counts, read_text

    sources = read_text(source)
    check_counts(texts.hypotheses, sources)
    return Comet(name or DEFAULT_MODEL, sources.lines, device=device)


def _print_log_probabilities(
    models: list[Path], options: DecodingOptions, source: Path, target: Path, *, as_json: bool
) -> None:
    """Sum, number and mean of each line's log-probabilities; those of the whole text on stderr."""
    from nmtdeep.decoding.log_probs import log_probabilities
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.scoring.texts import read_texts

    texts = read_texts(source, [target])
    with Translator.load(models, options) as translator:
        pairs = texts.hypotheses.lines, texts.references[0].lines
        lines = log_probabilities(translator, *pairs)
    rows = []
    for each in lines:
        total = math.fsum(each)
        row = {"log_prob": total, "tokens": len(each), "per_token": total / len(each), "each": each}
        rows.append(row)
        if not as_json:
            typer.echo(f"{total:.4f}\t{len(each)}\t{total / len(each):.4f}")
    if as_json:
        typer.echo(json.dumps(rows))
    tokens = sum(map(len, lines))
    total = math.fsum(map(math.fsum, lines))
    mean = -total / tokens
    typer.echo(
        f"{len(lines)} sentences, {tokens} tokens, log-probability {total:.2f}, "
        f"perplexity {math.exp(mean) if mean < 700 else math.inf:.3f}",
        err=True,
    )
