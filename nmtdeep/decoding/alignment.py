"""Which words of a source a translation's words come from, by the decoder's cross-attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
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
    `Candidate.tokenized`, or with SentencePiece what spaces separate.

    Raises:
        UserError: if the model has no cross-attention.
    """
    source, target = translator.pipeline.source, translator.pipeline.target
    places = [place for place, each in enumerate(translations) if each.candidates[0].subwords]
    pairs = [
        (
            source.vocabulary.ids(translations[place].subwords),
            target.vocabulary.ids(translations[place].candidates[0].subwords),
        )
        for place in places
    ]
    aligned = list(translations)
    for place, weights in zip(places, translator.compute(_weights, pairs), strict=True):
        translation = translations[place]
        first, *others = translation.candidates
        words = word_numbers(source, translation.subwords), word_numbers(target, first.subwords)
        first = replace(first, alignment=tuple(links(weights, *words)))
        aligned[place] = replace(translation, candidates=(first, *others))
    return aligned


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
    searcher: Searcher, pair: tuple[list[int], list[int]]
) -> npt.NDArray[np.floating[Any]]:
    """`(target, source)` weights of the chosen layer for the subwords of a pair."""
    model, device = searcher.models[0], searcher.device
    source = torch.tensor([*pair[0], EOS], device=device)
    target = torch.tensor([EOS, *pair[1]], device=device)
    maps = attention_maps(model, source, target, "cross")
    layer = -(-2 * len(maps) // 3) - 1
    weights: npt.NDArray[np.floating[Any]] = maps[layer].mean(0)[:-1, :-1].float().cpu().numpy()
    return weights
