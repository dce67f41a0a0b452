"""Choosing among translations of a line: minimum Bayes risk, and reranking by a COMET model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from operator import mul
from typing import TYPE_CHECKING

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.translation import Translation
from nmtdeep.errors import UserError
from nmtdeep.text.pipeline import Side

if TYPE_CHECKING:
    from nmtdeep.scoring.comet import CometModel

# Sources and the texts to choose from; the utility of each text (row) for each reference (column).
Lines = Sequence[tuple[str, Sequence[str]]]
Pairwise = Callable[[str, Sequence[str]], Sequence[Sequence[float]]]


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
        for each in translations:
            source = each.source if raw else side.join(each.subwords)
            lines.append((source, [candidate.text for candidate in each.candidates]))
        found = []
        for each, values in zip(translations, utilities(lines), strict=True):
            pairs = zip(values, each.candidates, strict=True)
            best = sorted(pairs, key=lambda pair: -pair[0])[: options.n_best]
            candidates = tuple(replace(candidate, utility=value) for value, candidate in best)
            found.append(replace(each, candidates=candidates))
        return found

    return select


def _utilities(
    options: DecodingOptions, device: str
) -> Callable[[Lines], Iterable[Sequence[float]]]:
    kind, _, name = (options.mbr or options.rerank or "").partition(":")
    if kind == "chrf":
        import fastchrf  # noqa: F401  # before anything is sampled

        return lambda lines: (expected_utilities(*line, chrf) for line in lines)
    from nmtdeep.scoring.comet import opened

    model = opened(name, device)
    find = partial(opened, name, device)  # its process may have ended since
    if model.reads_references != bool(options.mbr):
        what, other = "reads no", "--rerank comet-kiwi"
        if model.reads_references:
            what, other = "needs a", "--mbr comet"
        where, hint = "--mbr" if options.mbr else "--rerank", f"choose another, or {other}:{name}"
        raise UserError(f"{name} {what} reference", where=where, hint=hint)
    if options.rerank:
        return lambda lines: _qualities(find(), lines)
    return lambda lines: (expected_utilities(*line, partial(_comet, find())) for line in lines)


def _qualities(model: CometModel, lines: Lines) -> Iterable[Sequence[float]]:
    """Scores without references."""
    pairs = dict.fromkeys((source, text) for source, texts in lines for text in texts)
    known = dict(zip(pairs, model.scores(pairs), strict=True))
    return ([known[source, text] for text in texts] for source, texts in lines)


def _comet(model: CometModel, source: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    scores = iter(model.scores((source, *pair) for pair in product(texts, texts)))
    return [[next(scores) for _ in texts] for _ in texts]


def expected_utilities(source: str, texts: Sequence[str], pairwise: Pairwise) -> list[float]:
    """The mean utility of each text against all of them (Eikema and Aziz 2020).

    It estimates the utility that a text is expected to have, if the texts are samples of the model:
    sum_y u(text, y) / number. Equal texts are compared once.
    """
    counts = Counter(texts)
    rows = pairwise(source, list(counts))
    sums = [sum(map(mul, row, counts.values())) for row in rows]
    mean = {text: value / len(texts) for text, value in zip(counts, sums, strict=True)}
    return [mean[text] for text in texts]


def chrf(_: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """sacreBLEU's chrF of all pairs, by fastchrf.

    Raises:
        ModuleNotFoundError: without the extra `mbr`.
    """
    import fastchrf

    (scores,) = fastchrf.pairwise_chrf([list(texts)], [list(texts)])
    return scores
