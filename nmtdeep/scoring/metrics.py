"""Metrics by name, and `score_texts`, which applies them to lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import sacrebleu.metrics.base as sacrebleu_base
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER, TERScore

from nmtdeep.config.spelling import did_you_mean, instead
from nmtdeep.config.text import Text
from nmtdeep.config.training import Tokenization, Validation
from nmtdeep.errors import UserError, printable
from nmtdeep.scoring.texts import check_counts
from nmtdeep.scoring.tokenized import MosesPreparation, TokenizedBLEU


@dataclass(frozen=True)
class Score:
    """One number, with all that is needed to compare it.

    Attributes:
        metric: a key of `METRICS`.
        signature: settings and versions behind the number.
        details: the numbers that it was computed from.
    """

    metric: str
    value: float
    signature: str
    details: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """A way of scoring.

    Attributes:
        label: its name in papers.
        build: makes the sacreBLEU object that counts and computes.
        tokens: whether it counts tokens, so that --tokenize applies.
        cased: whether it distinguishes capital letters from small ones.
    """

    label: str
    build: Callable[[MosesPreparation | None], sacrebleu_base.Metric]
    tokens: bool = False
    higher_is_better: bool = True
    cased: bool = True


def _bleu(tokenize: str, *, lowercase: bool = False) -> Callable[..., BLEU]:
    def build(_: MosesPreparation | None) -> BLEU:
        try:
            # force: the command says in one line what sacreBLEU would log in three
            return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
        except (Exception, SystemExit) as error:  # no package, another dictionary, no internet
            cure = f'pip install "sacrebleu[{tokenize[:2]}]"'
            cure = "connect to the internet for its model" if tokenize == "flores200" else cure
            what = (
                f"not available ({printable(str(error).strip().partition(chr(10))[0].rstrip('.'))})"
            )
            where, hint = f"tokenization {tokenize}", f"{cure}, or choose char"
            raise UserError(what, where=where, hint=hint) from error

    return build


def _tokenized(*, lowercase: bool = False, compound: bool = False) -> Callable[..., BLEU]:
    return lambda preparation: TokenizedBLEU(
        lowercase=lowercase, compound=compound, preparation=preparation
    )


def _comet(_: MosesPreparation | None) -> sacrebleu_base.Metric:
    raise UserError("comet needs the source text", where="--metric", hint="add --source FILE")


BLEU_OF: Mapping[Tokenization, str] = {
    name: f"bleu-{name.removesuffix('-mecab')}".removesuffix("-13a")
    for name in get_args(Tokenization)
}
METRICS: Mapping[str, Metric] = {
    **{name: Metric(f"BLEU{name[4:]}", _bleu(tokenize)) for tokenize, name in BLEU_OF.items()},
    "bleu-lc": Metric("BLEU-lc", _bleu("13a", lowercase=True), cased=False),
    "bleu-intl-lc": Metric("BLEU-intl-lc", _bleu("intl", lowercase=True), cased=False),
    "bleu-tok": Metric("BLEU-tok", _tokenized(), tokens=True),
    "bleu-tok-lc": Metric("BLEU-tok-lc", _tokenized(lowercase=True), tokens=True, cased=False),
    "bleu-compound": Metric("BLEU-compound", _tokenized(compound=True), tokens=True),
    "chrf": Metric("chrF2", lambda _: CHRF()),
    "chrf++": Metric("chrF2++", lambda _: CHRF(word_order=2)),
    "ter": Metric("TER", lambda _: TER(), higher_is_better=False, cased=False),
    "comet": Metric("COMET", _comet, cased=False),
}
DEFAULT_METRICS = ("bleu", "chrf", "ter")
# Languages (ISO 639) that 13a does not fit: Chinese ones, Japanese, Korean; Thai, Khmer, Burmese,
# Lao, in which no tokenization but flores200 finds words.
TOKENIZATIONS: Mapping[str, Tokenization] = {
    **dict.fromkeys(("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
    **dict.fromkeys(("th", "tha", "km", "khm", "my", "mya", "bur", "lo", "lao"), "char"),
}


def is_available(tokenization: Tokenization) -> bool:
    """Whether the package that a tokenization needs is installed."""
    try:
        return bool(scorers([BLEU_OF[tokenization]]))
    except UserError:
        return False


def tokenization_for(
    language: str, available: Callable[[Tokenization], bool] = is_available
) -> Tokenization:
    """The tokenization of BLEU for a language tag: char if the best one is not available."""
    primary, *rest = language.lower().split("-")
    best = TOKENIZATIONS.get(primary, "13a") if "latn" not in rest else "13a"
    return best if available(best) else "char"


def usual_metrics(text: Text, tokenize: Tokenization | None = None) -> list[str]:
    """BLEU, chrF and TER for translations of a recipe's text; of lower-cased text BLEU says so.

    No TER in languages without spaces: sacreBLEU's finds the words of neither Japanese nor Thai.

    Args:
        tokenize: of BLEU; None: by the target language.
    """
    has_words = tokenization_for(text.target, bool) in ("13a", "ko-mecab")
    names = [_bleu_of(tokenize or tokenization_for(text.target), text), "chrf"]
    return [*names, "ter"] if has_words else names


def validation_metrics(settings: Validation, text: Text) -> list[str]:
    """BLEU and chrF of a run's validations; before there was a key, BLEU was of 13a tokens."""
    return [_bleu_of(settings.tokenize or "13a", text), "chrf"]


def _bleu_of(tokenize: Tokenization, text: Text) -> str:
    name = BLEU_OF[tokenize]
    return f"{name}-lc" if text.lowercase and f"{name}-lc" in METRICS else name


def best_figure(settings: Validation, text: Text, value: float) -> str:
    """What chose a checkpoint, `9.51 BLEU (beam 1)`; of a loss `value` is its negative."""
    if settings.best_by == "loss":
        return f"loss {-value:.4f}"
    by_bleu = settings.best_by == "bleu"
    metric = validation_metrics(settings, text)[0] if by_bleu else settings.best_by
    return f"{value:.2f} {label_of(metric)} (beam {settings.beam})"


def metric_named(name: str) -> Metric:
    """The metric of that name.

    Raises:
        UserError: with the nearest spelling, if there is no such metric.
    """
    if name in METRICS:
        return METRICS[name]
    if set(parts := name.replace(" ", "").split(",")) <= METRICS.keys():
        hint = f"pass {' '.join(f'--metric {part}' for part in parts)}"
        raise UserError(f"takes one name, not {name}", where="--metric", hint=hint)
    cure = instead("metric", name)
    if " " in cure:
        raise UserError(f"unknown metric {name!r}", hint=cure)
    guess = f"did you mean {cure}?" if cure else did_you_mean(name.lower(), list(METRICS))
    what = f"unknown metric {name!r}" + (f" ({guess})" if guess else "")
    raise UserError(what, hint=f"choose from {', '.join(METRICS)}")


def label_of(metric: str) -> str:
    """The metric's name in papers; an unknown metric's own name."""
    return METRICS[metric].label if metric in METRICS else metric


def heading_of(metric: str) -> str:
    """The metric's name in papers with an arrow towards better scores: `BLEU ↑`."""
    if metric not in METRICS:
        return metric
    return f"{METRICS[metric].label} {'↑' if METRICS[metric].higher_is_better else '↓'}"


def scorers(
    names: Iterable[str] = DEFAULT_METRICS,
    *,
    preparation: MosesPreparation | None = None,
    comet: sacrebleu_base.Metric | None = None,
) -> dict[str, sacrebleu_base.Metric]:
    """The sacreBLEU objects of metrics, by name and in the order of `names`.

    Args:
        preparation: tokenizes both sides for the metrics that count tokens.
        comet: the metric of that name, made for a source text; the last one if `names` lacks it.

    Raises:
        UserError: if a metric is unknown, or `comet` is missing.
    """
    ready = {"comet": comet} if comet else {}
    return {
        name: ready.get(name) or metric_named(name).build(preparation) for name in [*names, *ready]
    }


def score_texts(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Iterable[str] | Mapping[str, sacrebleu_base.Metric] = DEFAULT_METRICS,
) -> list[Score]:
    """Score lines of text, once per metric, in the order of `metrics`.

    Args:
        hypotheses: one line per sentence, raw (tokens for the `-tok` and `-compound` metrics,
            unless `scorers` had a preparation).
        references: one or more whole translations, each with as many lines as `hypotheses`.
        metrics: names out of `METRICS`, or what `scorers` made of them.

    Raises:
        UserError: if a metric is unknown, or a reference has fewer or more lines than `hypotheses`.
    """
    check_counts(("hypotheses", hypotheses), *(("reference", lines) for lines in references))
    scores = []
    made = metrics if isinstance(metrics, Mapping) else scorers(metrics)
    for name, scorer in made.items():
        result = scorer.corpus_score(hypotheses, references)
        signature = str(scorer.get_signature())
        scores.append(Score(name, float(result.score), signature, _details(result)))
    return scores


def _details(result: Any) -> dict[str, float | tuple[float, ...]]:
    if isinstance(result, BLEUScore):
        return {
            "precisions": tuple(result.precisions),
            "brevity_penalty": result.bp,
            "length_ratio": result.ratio,
            "hypothesis_length": result.sys_len,
            "reference_length": result.ref_len,
        }
    if isinstance(result, TERScore):
        return {"edits": result.num_edits, "reference_length": result.ref_length}
    return {}
