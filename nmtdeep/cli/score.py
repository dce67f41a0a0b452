"""`nmtdeep score`: scores with signatures, of files or of what a model translates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from nmtdeep.cli.options import METRIC, Json, decoding
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.scoring.texts import Texts
    from nmtdeep.scoring.tokenized import MosesPreparation

OF_MODEL = Option(rich_help_panel="With a model")
COMPARISON = Option(rich_help_panel="Comparison")
AT_LEAST_1 = Option(min=1, rich_help_panel="Comparison")
OF_SEARCHES = ("n_best", "output_is", "sampling", "temperature", "top_k", "top_p", "seed")


def score(
    files: Annotated[list[Path] | None, Argument(metavar="HYP REF")] = None,
    *,
    metric: Annotated[list[str] | None, METRIC] = None,
    tokenize: Annotated[str | None, Option(metavar="LANG")] = None,
    replace_unicode_punctuation: bool = False,
    as_json: Json = False,
    model: Annotated[
        list[Path] | None, Option("-m", "--model", rich_help_panel="With a model")
    ] = None,
    source: Annotated[Path | None, OF_MODEL] = None,
    reference: Annotated[list[Path] | None, OF_MODEL] = None,
    target: Annotated[Path | None, OF_MODEL] = None,
    log_prob: Annotated[bool, OF_MODEL] = False,
    system: Annotated[list[Path] | None, COMPARISON] = None,
    paired: Annotated[Literal["bootstrap", "randomization"], COMPARISON] = "bootstrap",
    trials: Annotated[int, AT_LEAST_1] = 1000,
    seed: Annotated[int, AT_LEAST_1] = 12345,
    options: Annotated[DecodingOptions, decoding(*OF_SEARCHES)],
) -> None:
    """Score translations: BLEU in the kinds that papers report, chrF and TER, with signatures.

    Files: nmtdeep score HYP REF

    What a model translates: nmtdeep score -m RUN --source S --reference R

    Log-probabilities of translations: nmtdeep score -m RUN --source S --target T --log-prob

    Args:
        files: The hypotheses (- for stdin), then one reference or more; .gz allowed.
        metric: Metric: bleu, bleu-lc, bleu-intl, bleu-intl-lc, bleu-zh, bleu-tok, bleu-tok-lc,
            bleu-compound, chrf, chrf++, ter. Default: bleu, chrf and ter.
        tokenize: Moses-tokenize both sides for bleu-tok, bleu-tok-lc and bleu-compound.
        replace_unicode_punctuation: Replace Unicode punctuation before --tokenize, as the DLCL and
            SDT papers do.
        model: Run or checkpoint that translates --source; several are an ensemble.
        source: Source text for --model.
        reference: Reference translation of --source.
        target: Translations of --source for --log-prob.
        log_prob: Print the model's log-probability of each line of --target: sum, number of tokens,
            mean.
        system: Hypotheses of another system, compared with the first.
        paired: Significance test for --system.
        trials: Number of samples for --paired.
        seed: Random seed for --paired.
    """
    of_model = {
        "--source": source,
        "--reference": reference,
        "--target": target,
        "--log-prob": log_prob,
        "options of models": options.model_fields_set,
    }
    _check_combination(model, files or [], of_model)
    if model and source and target:
        _print_log_probabilities(model, options, source, target, as_json=as_json)
        return

    from nmtdeep.scoring.metrics import DEFAULT_METRICS
    from nmtdeep.scoring.report import measure, plain_lines, records
    from nmtdeep.scoring.texts import read_texts
    from nmtdeep.scoring.warnings import warnings

    metrics = list(dict.fromkeys(metric or DEFAULT_METRICS))
    preparation = _preparation(metrics, tokenize, replace_punctuation=replace_unicode_punctuation)
    hypotheses, *references = files or [Path(source or ""), *(reference or [])]
    texts = read_texts(hypotheses, references, system or [])
    if model:
        texts = _translated(texts, model, options)
    for warning in warnings(texts, metrics, prepared=preparation is not None):
        typer.echo(f"nmtdeep: warning: {warning}", err=True)
    settings: dict[str, Any] = {"test": paired, "trials": trials, "seed": seed}
    rows = measure(texts, metrics, preparation=preparation, **settings)
    if as_json:
        typer.echo(json.dumps(records(texts.hypotheses.name, rows), ensure_ascii=False, indent=1))
    else:
        typer.echo("\n".join(plain_lines(rows)))


def _check_combination(
    model: object, files: Sequence[Path], of_model: Mapping[str, object]
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
    if given:
        raise UserError("needs a model", where=", ".join(sorted(given)), hint="add --model RUN")
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
    return replace(texts, hypotheses=hypotheses)


def _print_log_probabilities(
    models: list[Path], options: DecodingOptions, source: Path, target: Path, *, as_json: bool
) -> None:
    """Sum, number and mean of each line's log-probabilities; those of the whole text on stderr."""
    from nmtdeep.decoding.forced import log_probabilities
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.scoring.texts import read_texts

    texts = read_texts(source, [target])
    with Translator.load(models, options) as translator:
        pairs = texts.hypotheses.lines, texts.references[0].lines
        forced = list(log_probabilities(translator, *pairs))
    rows = [
        {
            "log_prob": line.log_prob,
            "tokens": len(line.tokens),
            "per_token": line.log_prob / len(line.tokens),
            "each": line.tokens,
        }
        for line in forced
    ]
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        for row in rows:
            typer.echo("{log_prob:.4f}\t{tokens}\t{per_token:.4f}".format_map(row))
    tokens = [token for line in forced for token in line.tokens]
    total = math.fsum(tokens)
    typer.echo(
        f"{len(rows)} sentences, {len(tokens)} tokens, log-probability {total:.2f}, "
        f"perplexity {math.exp(-total / len(tokens)):.3f}",
        err=True,
    )
