"""BPE-dropout (Provilkov, Emelianenko and Voita 2020): train on another segmentation each epoch."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

from nmtdeep.data.corpus import CorpusWriter, Ids, MonolingualCorpus, ParallelCorpus
from nmtdeep.data.parallel import chunks
from nmtdeep.errors import UserError
from nmtdeep.text.bpe import Bpe, join
from nmtdeep.text.pipeline import Side, TextPipeline
from nmtdeep.text.vocabulary import EOS, UNK

CHUNK = 2000  # sentences that are written at once


class LeftError(RuntimeError):
    """The corpus is not needed any more."""


def resample(
    corpus: ParallelCorpus,
    pipeline: TextPipeline,
    *,
    dropout: float,
    seed: int,
    epoch: int,
    directory: Path,
    leaving: Callable[[], bool] = lambda: False,
) -> ParallelCorpus:
    """The corpus, each word segmented again with BPE-dropout; written under `directory`.

    A sentence's segmentation is a function of (seed, epoch, its number, its side) alone. A sentence
    keeps its stored ids if it contains `<unk>` (its words are lost) or would be longer than
    `text.clean.max_length`; a word keeps its own if a piece is not in the vocabulary.

    Args:
        dropout: the probability of skipping a merge.
        leaving: called before each sentence; if it returns True, the work ends.

    Raises:
        LeftError: if `leaving` returns True.
        UserError: if the pipeline has no BPE of its own.
    """

    def segment(number: int, ids: Ids, side: Side, bpe: Bpe) -> Ids | list[int]:
        if leaving():
            raise LeftError
        # subword-nmt draws from Python's global generator.
        key = f"{seed} {epoch} {number} {side.language}".encode()
        random.seed(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()))
        return _segmented(ids, side, bpe, dropout)

    directory.mkdir(parents=True, exist_ok=True)
    sides = []
    for side, stored in ((pipeline.source, corpus.source), (pipeline.target, corpus.target)):
        if side.bpe is None:
            raise UserError(
                "BPE-dropout needs BPE", where="text.bpe", hint="set it to joint or separate"
            )
        stem = directory / f"epoch-{epoch}.{side.language}"
        dtype = stored.tokens.dtype.name
        numbers = range(len(stored))
        sentences = (segment(number, stored[number], side, side.bpe) for number in numbers)
        with CorpusWriter(stem, dtype) as writer:
            for chunk in chunks(sentences, CHUNK):
                writer.write(chunk)
        sides.append(MonolingualCorpus.open(stem, dtype, types=stored.types))
    return ParallelCorpus(*sides)


def _segmented(ids: Ids, side: Side, bpe: Bpe, dropout: float) -> Ids | list[int]:
    if (ids == UNK).any():
        return ids
    pieces: list[str] = []
    tags = side.config.tags.values()
    for word in join(side.vocabulary.words(ids.tolist())):
        if word in tags:
            pieces.append(word)
            continue
        drawn = bpe.word(word, dropout=dropout)
        pieces += drawn if all(piece in side.vocabulary for piece in drawn) else bpe.word(word)
    if len(pieces) > side.config.clean.max_length:
        return ids
    return [*side.vocabulary.ids(pieces), EOS]
