"""Warnings about text of the wrong form for a metric."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nmtdeep.scoring.metrics import METRICS
from nmtdeep.scoring.texts import Texts

LONGEST_FOR_TER = 200
_TOKENIZED_END = re.compile(r"\s[.?!。]\s*$")
_RAW_END = re.compile(r"\w[.?!]\s*$")


def warnings(texts: Texts, metrics: Sequence[str], *, prepared: bool) -> Iterator[str]:
    """A line for each problem: tokens for a metric of raw text, or the reverse; subwords; case.

    Text looks tokenized if most lines end in ` .`, and raw if most end in a word and `.`.

    Args:
        prepared: whether lines are tokenized for the metrics that count tokens.
    """
    hypotheses, reference = texts.hypotheses.lines, texts.references[0].lines
    raw_metrics = [name for name in metrics if not METRICS[name].tokens]
    token_metrics = [name for name in metrics if METRICS[name].tokens]
    cased = [name for name in metrics if METRICS[name].cased]
    if raw_metrics and _mostly(_TOKENIZED_END, hypotheses):
        yield (
            f"the hypotheses look tokenized, but {', '.join(raw_metrics)} expect raw text: "
            "detokenize them, or use --metric bleu-tok"
        )
    if token_metrics and not prepared and _mostly(_RAW_END, reference):
        yield (
            f"the reference looks raw, but {', '.join(token_metrics)} count the tokens of the "
            "files: add --tokenize LANG"
        )
    for name, lines in {"hypotheses": hypotheses, "reference": reference}.items():
        if mark := subword_mark(lines):
            yield (
                f"there are subwords ({mark}) in the {name}, so that every score counts pieces of "
                "words: join them first, for comparable scores"
            )
    if cased and _is_lower(hypotheses) and not _is_lower(reference):
        yield (
            "the hypotheses have no capital letter, as of a model of lower-cased text, and "
            f"{', '.join(cased)} count each one of the reference as wrong: use --metric bleu-lc"
        )
    words, number = max((len(line.split()), n) for n, line in enumerate(hypotheses, 1))
    if "ter" in metrics and words > LONGEST_FOR_TER:
        yield (
            f"line {number} has {words:,} words, and ter takes minutes for lines of hundreds: "
            "leave it out with --metric bleu --metric chrf"
        )


def subword_mark(lines: Sequence[str]) -> str:
    """The mark of subwords in a tenth of the lines or more: `@@` of BPE, or SentencePiece's `▁`."""
    for mark, pattern in (("@@", r"@@( |$)"), ("▁", r"(^| )▁\S")):
        if 10 * sum(1 for line in lines if re.search(pattern, line)) >= len(lines):
            return mark
    return ""


def _is_lower(lines: Sequence[str]) -> bool:
    return not any(letter.isupper() for line in lines for letter in line)


def _mostly(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    return sum(1 for line in lines if pattern.search(line)) > len(lines) / 2
