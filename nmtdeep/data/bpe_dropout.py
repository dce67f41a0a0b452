"""BPE-dropout (Provilkov, Emelianenko and Voita 2020): train on another segmentation each epoch."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nmtdeep.config.text import NoBpe
from nmtdeep.data.corpus import CorpusWriter, Ids, MonolingualCorpus, ParallelCorpus
from nmtdeep.data.parallel import ordered_map
from nmtdeep.errors import UserError
from nmtdeep.text.bpe import Bpe, join
from nmtdeep.text.pipeline import Side, TextPipeline
from nmtdeep.text.vocabulary import EOS, UNK

CHUNK = 2000
Numbered = tuple[int, list[Ids]]


class LeftError(RuntimeError):
    """The corpus is not needed any more."""


def resample(
    corpus: ParallelCorpus,
    pipeline: TextPipeline,
    *,
    seed: int,
    epoch: int,
    directory: Path,
    dropout: float | None = None,
    workers: int = 1,
    leaving: Callable[[], bool] = lambda: False,
    chunk: int = CHUNK,
) -> ParallelCorpus:
    """The corpus, each word segmented again with BPE-dropout; written under `directory`.

    A sentence's segmentation is a function of (seed, epoch, its number, its side) alone. A sentence
    keeps its stored ids if it contains `<unk>` (its words are lost) or would be longer than
    `text.clean.max_length`; a word keeps its own if a piece is not in the vocabulary.

    Args:
        dropout: the probability of skipping a merge; None: that of the pipeline.
        leaving: called between chunks of sentences; if it returns True, the work ends.

    Raises:
        LeftError: if `leaving` returns True.
        UserError: if the pipeline has no BPE of its own.
    """
    config = pipeline.config.bpe
    directory.mkdir(parents=True, exist_ok=True)
    sides = []
    for side, stored in ((pipeline.source, corpus.source), (pipeline.target, corpus.target)):
        if isinstance(config, NoBpe) or side.bpe is None:
            raise UserError(
                "BPE-dropout needs BPE", where="text.bpe", hint="set it to joint or separate"
            )
        stem = directory / f"epoch-{epoch}.{side.language}"
        dtype = stored.tokens.dtype.name
        probability = config.dropout if dropout is None else dropout
        stage = _Resample(side, side.bpe, probability, seed, epoch)
        with CorpusWriter(stem, dtype) as writer:
            for sentences in ordered_map(stage, _chunks(stored, leaving, chunk), workers=workers):
                writer.write(sentences)
        sides.append(MonolingualCorpus.open(stem, dtype, types=stored.types))
    return ParallelCorpus(*sides)


def _chunks(
    corpus: MonolingualCorpus, leaving: Callable[[], bool], size: int
) -> Iterator[Numbered]:
    for start in range(0, len(corpus), size):
        if leaving():
            raise LeftError
        stop = min(start + size, len(corpus))
        yield start, [corpus[index] for index in range(start, stop)]


@dataclass(frozen=True)
class _Resample:
    side: Side
    bpe: Bpe
    dropout: float
    seed: int
    epoch: int

    def __call__(self, chunk: Numbered) -> list[Ids | list[int]]:
        start, sentences = chunk
        with _own_random():
            return [self._sentence(start + index, ids) for index, ids in enumerate(sentences)]

    def _sentence(self, number: int, ids: Ids) -> Ids | list[int]:
        if (ids == UNK).any():
            return ids
        key = f"{self.seed} {self.epoch} {number} {self.side.language}".encode()
        random.seed(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()))
        vocabulary = self.side.vocabulary
        pieces = [
            piece for word in join(vocabulary.words(ids.tolist())) for piece in self._word(word)
        ]
        if len(pieces) > self.side.config.clean.max_length:
            return ids
        return [*vocabulary.ids(pieces), EOS]

    def _word(self, word: str) -> tuple[str, ...]:
        pieces = self.bpe.word(word, dropout=self.dropout)
        if all(piece in self.side.vocabulary for piece in pieces):
            return pieces
        return self.bpe.word(word)


@contextmanager
def _own_random() -> Iterator[None]:
    """Restore Python's global generator, which subword-nmt draws from, at the end."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
