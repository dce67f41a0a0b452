"""Subword models and vocabularies, learned from training text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from nmtdeep.config.text import JointBpe, NoBpe, SentencePiece, Text
from nmtdeep.preprocessing.progress import ProgressBar
from nmtdeep.text import sentencepiece
from nmtdeep.text.bpe import Bpe, learn
from nmtdeep.text.pipeline import Model
from nmtdeep.text.vocabulary import Vocabulary, shared_or_separate

# Different words of one side that are counted at a time.
WORDS = 1 << 21
Models = tuple[Model, Model]


class Tally:
    """Number of occurrences of each word; exact while there are at most `capacity` different ones.

    Beyond that the rarest words are forgotten, until half of the capacity is free. A forgotten
    word has fewer occurrences so far than any that is kept, and may be counted again.

    Attributes:
        counts: of the words that are not forgotten.
        forgotten: occurrences that were not counted.
    """

    def __init__(self, capacity: int = WORDS) -> None:
        self.capacity = capacity
        self.counts: Counter[str] = Counter()
        self.forgotten = 0

    def add(self, counts: Counter[str]) -> None:
        """Count the words of one more piece of text."""
        self.counts.update(counts)
        if len(self.counts) > self.capacity:
            total = self.counts.total()
            rarest = sorted(self.counts.values(), reverse=True)[self.capacity // 2]
            self.counts = Counter({word: n for word, n in self.counts.items() if n > rarest})
            self.forgotten += total - self.counts.total()


Tallies = tuple[Tally, Tally]


def learn_bpe(text: Text, words: Tallies, progress: ProgressBar) -> Models:
    """BPE of both sides from the words of train."""
    bpe = text.bpe
    if isinstance(bpe, NoBpe):
        return None, None
    joint = isinstance(bpe, JointBpe)
    sides = [tally.counts for tally in words]
    texts = [sides[0] + sides[1]] if joint else sides
    with progress.step("learn BPE", bpe.merges * len(texts)) as advance:
        # A first call, before any merge, is for the header.
        merges = [learn(each, bpe.merges, report=lambda n: advance(n > 0)) for each in texts]
    codes = [Bpe(each) for each in merges]
    if joint:
        codes.append(codes[0])
    if bpe.vocabulary_threshold:
        for side, counts in enumerate(sides):
            pieces = codes[side].count(counts).items()
            allowed = (piece for piece, number in pieces if number >= bpe.vocabulary_threshold)
            codes[side] = Bpe(codes[side].merges, frozenset(allowed))
    return codes[0], codes[1]


def learn_pieces(
    text: Text,
    tokenizer: SentencePiece,
    lines: Callable[[int], Iterable[str]],
    total: int,
    progress: ProgressBar,
) -> Models:
    """SentencePiece models of both sides; from as many lines of both if they share one.

    Args:
        lines: the `total` lines of train, source (0) or target (1).
    """
    shared = text.vocabulary.sharing == "shared"
    wanted = sentencepiece.LINES >> shared
    parts = [sentencepiece.spread(lines(side), total, wanted) for side in (0, 1)]
    models = []
    with progress.step("learn SentencePiece", 2 - shared) as advance:
        for part in [chain(*parts)] if shared else parts:
            models.append(sentencepiece.learn(part, tokenizer, normalize=text.normalize))
            advance(1)
    return models[0], models[-1]


def vocabularies(
    text: Text, subwords: Tallies, words: Tallies, models: Sequence[Model]
) -> tuple[Vocabulary, Vocabulary]:
    """Types of the kept training pairs; with BPE-dropout, also all that it can produce.

    Those of SentencePiece are the pieces of the model. It is the same object twice if shared.
    """
    config = text.vocabulary
    counts = (subwords[0].counts, subwords[1].counts)
    pieces = [each.pieces for each in models if isinstance(each, sentencepiece.SentencePiece)]
    if not isinstance(text.bpe, NoBpe) and text.bpe.dropout:
        for side, bpe in enumerate(models):
            for symbol in bpe.symbols(words[side].counts) if isinstance(bpe, Bpe) else ():
                counts[side][symbol] = max(counts[side][symbol], config.min_count)
    return shared_or_separate(*counts, config, pieces)
