"""Other segmentations of training sentences, drawn while batches are made.

BPE-dropout (Provilkov, Emelianenko and Voita 2020) and subword regularization (Kudo 2018), word by
word: a SentencePiece model splits between words too, so that the words' probabilities multiply.
"""

from __future__ import annotations

import hashlib
import math
import random
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from nmtdeep.config.text import NoBpe, Sampling, Text
from nmtdeep.config.text import SentencePiece as SentencePieceConfig
from nmtdeep.data.corpus import Flat, MonolingualCorpus, ParallelCorpus
from nmtdeep.text.bpe import SEPARATOR
from nmtdeep.text.bpe import join as join_bpe
from nmtdeep.text.pipeline import Side, TextPipeline
from nmtdeep.text.sentencepiece import SPACE, SentencePiece
from nmtdeep.text.vocabulary import EOS, UNK

Word = tuple[int, ...]
# Segmentations that BPE-dropout draws of a word, once in a training; each occurrence takes one.
VARIANTS = 64
# Words whose segmentations are kept.
REMEMBERED = 1 << 17


@dataclass(frozen=True)
class Segmenter:
    """Draws the segmentations of one side's sentences.

    Args:
        strength: probability of skipping a merge, or the sampling of a unigram model.
    """

    side: Side
    strength: float | Sampling
    seed: int

    def draw(self, ids: Sequence[int], *name: object) -> list[int]:
        """Another segmentation of a sentence that ends in EOS: a function of (seed, name) alone.

        A sentence keeps its ids if it contains `<unk>` (its words are lost) or would be longer than
        `text.clean.max_length`.
        """
        if UNK in ids:
            return [*ids]
        uniform = random.Random(self._number(*name)).random
        drawn: list[int] = []
        for word in self._words(ids[:-1]):
            drawn += self._drawn(word, uniform())
        longest = self.side.config.clean.max_length
        return [*ids] if len(drawn) > longest else [*drawn, EOS]

    def _number(self, *name: object) -> int:
        key = " ".join(map(str, (self.seed, *name))).encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())

    @cached_property
    def _borders(self) -> tuple[int, list[bool]]:
        """Whether a word begins with each id (0), or after it (1)."""
        tokens = self.side.vocabulary.tokens
        if isinstance(self.side.model, SentencePiece):
            return 0, [token.startswith(SPACE) for token in tokens]
        return 1, [not token.endswith(SEPARATOR) for token in tokens]

    def _words(self, ids: Sequence[int]) -> list[Word]:
        after, borders = self._borders
        firsts = [place for place in range(1, len(ids)) if borders[ids[place - after]]]
        return [tuple(ids[first:last]) for first, last in pairwise([0, *firsts, len(ids)])]

    def _drawn(self, word: Word, uniform: float) -> Word:
        """The segmentation of a word for a number between 0 and 1."""
        if isinstance(self.strength, float):
            return self._variant(word, int(uniform * VARIANTS))
        reached, choices = self._best(word)
        return choices[bisect(reached, uniform * reached[-1], hi=len(choices) - 1)]

    @cached_property
    def _variant(self) -> Callable[[Word, int], Word]:
        """A word's segmentation by BPE-dropout, by its number."""
        vocabulary, model, dropout = self.side.vocabulary, self.side.model, self.strength
        assert model is not None and isinstance(dropout, float)
        join = "".join if isinstance(model, SentencePiece) else lambda word: "".join(join_bpe(word))

        def variant(ids: Word, number: int) -> Word:
            pieces = vocabulary.words(ids)
            word = join(pieces)
            if list(model.word(word)) != pieces:  # a tag, bytes
                return ids
            draw = random.Random(self._number(word, number))
            drawn = vocabulary.ids(model.dropped(word, dropout, draw))
            return ids if UNK in drawn else tuple(drawn)

        return lru_cache(REMEMBERED)(variant)

    @cached_property
    def _best(self) -> Callable[[Word], tuple[list[float], list[Word]]]:
        """A word's best segmentations, and sums of p^alpha up to each."""
        vocabulary, model, sampling = self.side.vocabulary, self.side.model, self.strength
        assert isinstance(model, SentencePiece) and isinstance(sampling, Sampling)

        def best(ids: Word) -> tuple[list[float], list[Word]]:
            choices = model.best(vocabulary.words(ids), sampling.nbest)
            scores = {tuple(vocabulary.ids(pieces)): score for score, pieces in choices}
            if ids not in scores:  # bytes, several spaces, a tag
                return [1.0], [ids]
            known = [word for word in scores if UNK not in word]
            highest = max(scores[word] for word in known)
            weights = [math.exp(sampling.alpha * (scores[word] - highest)) for word in known]
            return list(accumulate(weights)), known

        return lru_cache(REMEMBERED)(best)


@dataclass(frozen=True, kw_only=True)
class DrawnCorpus(MonolingualCorpus):
    """Sentences that `read` segments as is drawn for this epoch; lengths are those on disk.

    The segmentation depends on seed, epoch, side and number of the sentence.
    """

    segmenter: Segmenter
    epoch: int

    def read(self, indices: npt.NDArray[np.int64]) -> Flat:
        ids, lengths = super().read(indices)
        stored = np.split(ids, np.cumsum(lengths)[:-1])
        drawn = [
            self.segmenter.draw(sentence.tolist(), self.epoch, self.stem.name, number)
            for sentence, number in zip(stored, indices.tolist(), strict=True)
        ]
        return np.concatenate(drawn), np.array([len(each) for each in drawn])


@dataclass(frozen=True, kw_only=True)
class SelectedCorpus(MonolingualCorpus):
    """Some sentences of a corpus, which `read` finds by their numbers there.

    Attributes:
        numbers: ascending, one for each sentence.
    """

    numbers: npt.NDArray[np.int64]

    def read(self, indices: npt.NDArray[np.int64]) -> Flat:
        return super().read(np.searchsorted(self.numbers, indices))


def in_memory(corpus: ParallelCorpus, numbers: npt.NDArray[np.int64]) -> ParallelCorpus:
    """The sentences of these ascending numbers, read once."""
    sides = []
    for side in (corpus.source, corpus.target):
        ids, lengths = side.read(numbers)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        sides.append(
            SelectedCorpus(ids.astype(side.tokens.dtype), offsets, side.stem, numbers=numbers)
        )
    return ParallelCorpus(*sides)


def segmenters(
    pipeline: TextPipeline, text: Text, *, seed: int
) -> tuple[Segmenter, Segmenter] | None:
    """Of source and target, as the recipe's section `text` says; None: nothing is drawn."""
    strength = drawn_by(text)
    if not strength:
        return None
    return Segmenter(pipeline.source, strength, seed), Segmenter(pipeline.target, strength, seed)


def drawn_by(text: Text) -> float | Sampling | None:
    """The strength by which segmentations are drawn; nothing, or 0, if they are not."""
    if isinstance(text.tokenizer, SentencePieceConfig):
        sampling = text.tokenizer.sampling
        return sampling.alpha if sampling and text.tokenizer.model == "bpe" else sampling
    return None if isinstance(text.bpe, NoBpe) else text.bpe.dropout


def segmented(
    corpus: ParallelCorpus, sides: tuple[Segmenter, Segmenter] | None, epoch: int
) -> ParallelCorpus:
    """The corpus as it is read in an epoch."""
    if sides is None:
        return corpus
    source, target = (
        DrawnCorpus(
            side.tokens, side.offsets, side.stem, side.types, segmenter=segmenter, epoch=epoch
        )
        for side, segmenter in zip((corpus.source, corpus.target), sides, strict=True)
    )
    return ParallelCorpus(source, target)
