"""Choosing among translations of a line: minimum Bayes risk, and reranking by a COMET model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.translation import Translation
from nmtdeep.errors import UserError
from nmtdeep.text.pipeline import Side

if TYPE_CHECKING:
    from nmtdeep.scoring.comet import CometModel

# A source and the texts to choose from; the utility of each text (row) if each of them were the
# reference (column); the utility of each text of each line.
Line = tuple[str, Sequence[str]]
Pairwise = Callable[[str, Sequence[str]], Sequence[Sequence[float]]]
Utilities = Callable[[Sequence[Line]], Iterator[Sequence[float]]]


def selector(
    options: DecodingOptions, device: str, side: Side
) -> Callable[[Sequence[Translation]], list[Translation]]:
    """A function that chooses the `n_best` candidates of each line by `mbr` or `rerank`.

    Args:
        device: where a COMET model computes.
        side: of the source, whose words or subwords are joined for the model.

    Raises:
        UserError: if the model cannot be read, or is of the wrong kind.
    """
    if not (options.mbr or options.rerank):
        return list
    utilities = _utilities(options, device)

    def select(translations: Sequence[Translation]) -> list[Translation]:
        raw, lines = options.input_is == "raw", []
        for each in filter(attrgetter("subwords"), translations):  # a blank line has no choice
            source = each.source if raw else side.join(each.subwords)
            lines.append((source, [candidate.text for candidate in each.candidates]))
        found = utilities(lines)
        return [
            _ordered(each, next(found), options.n_best) if each.subwords else each
            for each in translations
        ]

    return select


def _ordered(translation: Translation, values: Sequence[float], n_best: int) -> Translation:
    """The translation with its best candidates, equal ones in their order."""
    pairs = zip(values, translation.candidates, strict=True)
    best = sorted(pairs, key=lambda pair: -pair[0])[:n_best]
    candidates = tuple(replace(candidate, utility=value) for value, candidate in best)
    return replace(translation, candidates=candidates)


def _utilities(options: DecodingOptions, device: str) -> Utilities:
    if options.mbr == "chrf":
        return lambda lines: (expected_utilities(*line, chrf) for line in lines)
    from nmtdeep.scoring.comet import opened

    name = (options.mbr or options.rerank or "").partition(":")[2]
    model = opened(name, device)
    if options.rerank and model.reads_references:
        hint = f"pass one such as Unbabel/wmt22-cometkiwi-da, or --mbr comet:{name}"
        raise UserError(f"{name} needs a reference", where="--rerank", hint=hint)
    if options.rerank:
        return lambda lines: _qualities(model, lines)
    if not model.reads_references:
        hint = f"pass one such as Unbabel/wmt22-comet-da, or --rerank comet-kiwi:{name}"
        raise UserError(f"{name} reads no reference", where="--mbr", hint=hint)

    def comet(source: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        scores = model.scores((source, text, other) for text, other in product(texts, texts))
        size = len(texts)
        return [scores[first : first + size] for first in range(0, size * size, size)]

    return lambda lines: (expected_utilities(*line, comet) for line in lines)


def _qualities(model: CometModel, lines: Sequence[Line]) -> Iterator[Sequence[float]]:
    """Scores without references."""
    pairs = dict.fromkeys((source, text) for source, texts in lines for text in texts)
    known = dict(zip(pairs, model.scores(pairs), strict=True))
    return ([known[source, text] for text in texts] for source, texts in lines)


def expected_utilities(source: str, texts: Sequence[str], pairwise: Pairwise) -> list[float]:
    """The mean utility of each text against all of them (Eikema and Aziz 2020).

    It estimates the utility that a text is expected to have, if the texts are samples of the model:
    sum_y u(text, y) / number. Equal texts are compared once.
    """
    counts = Counter(texts)
    rows = pairwise(source, list(counts))
    mean = {
        text: sum(value * count for value, count in zip(row, counts.values(), strict=True))
        / len(texts)
        for text, row in zip(counts, rows, strict=True)
    }
    return [mean[text] for text in texts]


def chrf(_: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """sacreBLEU's chrF of all pairs, by fastchrf.

    Raises:
        ModuleNotFoundError: without the extra `mbr`.
    """
    import fastchrf

    (scores,) = fastchrf.pairwise_chrf([list(texts)], [list(texts)])
    return scores
