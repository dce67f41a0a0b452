"""Which words of a source a translation's words come from, by the decoder's cross-attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from nmtdeep.analysis.attention import attention_maps
from nmtdeep.decoding.searcher import Searcher
from nmtdeep.decoding.translation import Translation
from nmtdeep.decoding.translator import Translator
from nmtdeep.text.bpe import SEPARATOR
from nmtdeep.text.pipeline import Side
from nmtdeep.text.sentencepiece import SPACE, SentencePiece
from nmtdeep.text.vocabulary import EOS

# A link of the source's word i to the translation's word j, both counted from 0.
Link = tuple[int, int]


def align(translator: Translator, translations: Sequence[Translation]) -> list[Translation]:
    """The same translations, the first candidate of each with its links.

    Each word of the translation is linked to the source word that its subwords attend to most, in
    the mean over the heads of the layer at two thirds of the decoder, as the layers above and below
    align less well (docs/translating.md); of an ensemble, by the first model. Words are those of
    `Candidate.tokenized`, or with SentencePiece what spaces separate. Parts of a line that was too
    long are aligned as they were translated, each by itself.

    Raises:
        UserError: if the model has no cross-attention.
    """
    source, target = translator.pipeline.source, translator.pipeline.target
    parts = [
        (place, reads, writes)
        for place, each in enumerate(translations)
        for reads, writes in zip(*_parts(each, source), strict=True)
        if writes.start < writes.stop
    ]
    pairs = []
    for place, reads, writes in parts:
        subwords = translations[place].subwords
        before = [*translator.tag, *source.vocabulary.ids(source.target_code(subwords))]
        output = target.vocabulary.ids(translations[place].candidates[0].subwords[writes])
        pairs.append((len(before), [*before, *source.vocabulary.ids(subwords[reads])], output))
    found: list[list[Link]] = [[] for _ in translations]
    words = [0] * len(translations)
    for (place, reads, writes), weights in zip(
        parts, translator.compute(_weights, pairs), strict=True
    ):
        read = word_numbers(source, translations[place].subwords)[reads]
        written = word_numbers(target, translations[place].candidates[0].subwords[writes])
        local = links(weights, [number - read[0] for number in read], written)
        found[place] += [(i + read[0], j + words[place]) for i, j in local]
        words[place] += written[-1] + 1
    aligned = []
    for each, own in zip(translations, found, strict=True):
        first, *others = each.candidates
        if first.subwords:
            first = replace(first, alignment=tuple(own))
        aligned.append(replace(each, candidates=(first, *others)))
    return aligned


def _parts(translation: Translation, source: Side) -> tuple[list[slice], list[slice]]:
    """The subwords of each part of the source, and those of its translation."""
    skipped = len(source.target_code(translation.subwords))
    first = translation.candidates[0]
    return _slices(translation.parts, skipped), _slices(first.parts, 0)


def _slices(lengths: Sequence[int], start: int) -> list[slice]:
    return [slice(*each) for each in pairwise(accumulate(lengths, initial=start))]


def pharaoh(alignment: Iterable[Link]) -> str:
    """`0-0 1-2`: source and target word of each link."""
    return " ".join(f"{source}-{target}" for source, target in alignment)


def links(
    weights: npt.NDArray[np.floating[Any]], source: Sequence[int], target: Sequence[int]
) -> list[Link]:
    """A link for each word of the target, to the word of the source with the most weight.

    Args:
        weights: `(target, source)` of subwords.
        source: the word of each subword; so is `target`.
    """
    sums = np.zeros((target[-1] + 1, source[-1] + 1))
    np.add.at(sums, (np.array(target)[:, None], np.array(source)[None]), weights)
    return [(int(row.argmax()), word) for word, row in enumerate(sums)]


def word_numbers(side: Side, subwords: Sequence[str]) -> list[int]:
    """The number of the word that each subword belongs to, from 0."""
    if isinstance(side.model, SentencePiece):
        begins = [subword.startswith(SPACE) for subword in subwords]
    else:
        begins = [True, *(not subword.endswith(SEPARATOR) for subword in subwords[:-1])]
    begins[0] = False
    return np.cumsum(begins).tolist()


@torch.inference_mode()
def _weights(
    searcher: Searcher, pair: tuple[int, list[int], list[int]]
) -> npt.NDArray[np.floating[Any]]:
    """`(target, source)` weights of the chosen layer, without the first ids of the source."""
    model, device = searcher.models[0], searcher.device
    source = torch.tensor([*pair[1], EOS], device=device)
    target = torch.tensor([EOS, *pair[2]], device=device)
    maps = attention_maps(model, source, target, "cross")
    layer = -(-2 * len(maps) // 3) - 1
    weights = maps[layer].mean(0)[:-1, pair[0] : -1].float()
    found: npt.NDArray[np.floating[Any]] = weights.cpu().numpy()
    return found
