"""Text that does not fit a metric: warnings, and lines that are too long for TER."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from nmtdeep.scoring.metrics import BLEU_OF, METRICS, tokenization_for
from nmtdeep.scoring.texts import Texts

LONGEST_FOR_TER = 200
# Metrics that count the words between spaces.
SPACED = {"bleu", "bleu-lc", "bleu-intl", "bleu-intl-lc", "ter"}
SPACED |= {"bleu-tok", "bleu-tok-lc", "bleu-compound"}
_TOKENIZED_END = re.compile(r"\s[.?!。]\s*$")
_RAW_END = re.compile(r"\w[.?!]\s*$")
# Letters of scripts without spaces: Han, kana; Thai, Lao, Burmese and Khmer.
_HAN = r"[\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_KANA = r"[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]"
_OTHERS = r"[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f]"
# Letters of these scripts for each space, from which on the text is not cut into words.
UNCUT = 6


def warnings(texts: Texts, metrics: Sequence[str], *, prepared: bool) -> Iterator[str]:
    """A line for each problem: tokens for a metric of raw text, or the reverse; spaces; case.

    Text looks tokenized if most lines end in ` .`, and raw if most end in a word and `.`.

    Args:
        prepared: whether lines are tokenized for the metrics that count tokens.
    """
    hypotheses, reference = texts.hypotheses.lines, texts.references[0].lines
    raw_metrics = [name for name in metrics if not METRICS[name].tokens]
    token_metrics = [name for name in metrics if METRICS[name].tokens]
    spaced = [name for name in metrics if name in SPACED]
    cased = [name for name in metrics if METRICS[name].cased]
    named = {"the hypotheses": hypotheses, "the reference": reference}
    named |= {each.name: each.lines for each in (*texts.references[1:], *texts.systems)}
    tokenized = [name for name, lines in named.items() if _mostly(_TOKENIZED_END, lines)]
    if raw_metrics and tokenized:
        look = "look" if len(tokenized) > 1 or "the hypotheses" in tokenized else "looks"
        yield (
            f"{' and '.join(tokenized)} {look} tokenized, but {_they(raw_metrics, 'expect')} raw "
            "text: detokenize what is tokenized, or use --metric bleu-tok"
        )
    if token_metrics and not prepared and _mostly(_RAW_END, reference):
        yield (
            f"the reference looks raw, but {_they(token_metrics, 'count')} the tokens of the "
            "files: add --tokenize LANG"
        )
    if spaced and (better := fitting(hypotheses) or fitting(reference)):
        yield (
            f"the text has no spaces between words, and {_they(spaced, 'count')} a line as about "
            f"one word: use --metric {better} --metric chrf"
        )
    for name, lines in named.items():
        if mark := subword_mark(lines):
            yield (
                f"there are subwords ({mark}) in {name}, so that every score counts pieces of "
                "words: join them first, for comparable scores"
            )
    if cased and _is_lower(hypotheses) and any(map(str.isupper, "".join(reference))):
        lower = [f"--metric {name}-lc" for name in cased if f"{name}-lc" in METRICS]
        yield (
            "the hypotheses have no capital letter, as of a model of lower-cased text, and "
            f"{_they(cased, 'count')} each one of the reference as wrong: "
            + (f"use {' '.join(lower)}" if lower else "lower-case the reference too")
        )
    others, reason = without_ter(metrics, *named.values())
    if reason:
        usual = " ".join(f"--metric {name}" for name in others)
        yield f"{reason}: leave it out" + (f" with {usual}" if usual else "")


def without_ter(metrics: Sequence[str], *texts: Sequence[str]) -> tuple[list[str], str]:
    """The metrics without TER, and why, if a line of `texts` is too long for it."""
    counts = (len(line.split()) for line in chain(*texts))
    words, number = max(((count, -place) for place, count in enumerate(counts)), default=(0, 0))
    if "ter" not in metrics or words <= LONGEST_FOR_TER:
        return list(metrics), ""
    line = -number % len(texts[0]) + 1
    reason = f"line {line} has {words:,} words, and ter takes minutes for lines of hundreds"
    return [name for name in metrics if name != "ter"], reason


def fitting(lines: Sequence[str]) -> str:
    """The BLEU for text mostly in scripts without spaces, and not cut into words; else empty."""
    text = "".join(lines)
    han, kana, others = (len(re.findall(script, text)) for script in (_HAN, _KANA, _OTHERS))
    joined, spaces = han + kana + others, sum(len(line.split()) - 1 for line in lines if line)
    if 2 * joined <= sum(map(str.isalpha, text)) or joined <= UNCUT * spaces:
        return ""
    language = "ja" if 20 * kana > joined else "zh" if han > others else "th"
    return BLEU_OF[tokenization_for(language)]


def subword_mark(lines: Sequence[str]) -> str:
    """The mark of subwords in a tenth of the lines or more: `@@` of BPE, or SentencePiece's `▁`."""
    for mark, pattern in (("@@", r"@@( |$)"), ("▁", r"(^| )▁\S")):
        if 10 * sum(1 for line in lines if re.search(pattern, line)) >= len(lines):
            return mark
    return ""


def _is_lower(lines: Sequence[str]) -> bool:
    """Whether most letters have a capital that begins words, unlike Georgian ones, and none is."""
    letters = [letter for letter in "".join(lines) if letter.isalpha()]
    small = sum(letter != letter.title() for letter in letters)
    return 2 * small > len(letters) and not any(map(str.isupper, letters))


def _they(names: Sequence[str], verb: str) -> str:
    return f"{', '.join(names)} {verb}{'s' if len(names) == 1 else ''}"


def _mostly(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    return sum(1 for line in lines if pattern.search(line)) > len(lines) / 2
