"""Sizes that packed batches are padded to, so that a GPU can replay what it did for another batch.

A CUDA graph repeats work on tensors of the same shape. Packed batches have a few shapes, if each is
filled up to a capacity; a batch that no capacity holds keeps its own shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Graphs of a training, batches from which their sizes are chosen, and values tried for a number.
MOST, SAMPLE, VALUES = 8, 512, 65
# A batch that no capacity holds costs so many times its tokens.
EAGER = 1.5
# Tokens are a multiple of this, for fast matrix products.
MULTIPLE = 8
# Batches with more sentences than any of the sample are met later.
MORE_SENTENCES = 1.2
Lengths = NDArray[np.int64]


class Capacity(NamedTuple):
    """The shape of a batch.

    Attributes:
        tokens: of source and target.
        sentences: pairs, those that fill it up included.
        longest: tokens of a source and of a target sentence, at most.
    """

    tokens: tuple[int, int]
    sentences: int
    longest: tuple[int, int]

    def fillers(self, lengths: Lengths) -> tuple[Lengths, Lengths] | None:
        """Lengths of sentences that fill up both sides, as many on each; None: it holds no batch.

        Some are empty on one side.

        Args:
            lengths: `(2, sentences)` of the batch.
        """
        free = [most - int(used) for most, used in zip(self.tokens, lengths.sum(1), strict=True)]
        counts = [-(-tokens // most) for tokens, most in zip(free, self.longest, strict=True)]
        if min(free) < 0 or lengths.shape[1] + max(counts) > self.sentences:
            return None
        if np.any(lengths.max(axis=1) > self.longest):
            return None
        parts = zip(free, counts, strict=True)
        source, target = (np.diff(rest * np.arange(n + 1) // max(n, 1)) for rest, n in parts)
        more = max(counts)
        return np.pad(source, (0, more - len(source))), np.pad(target, (0, more - len(target)))


def fitting(capacities: Sequence[Capacity], lengths: Lengths) -> Capacity | None:
    """The smallest capacity that holds a batch, or None."""
    fits = [each for each in capacities if each.fillers(lengths) is not None]
    return min(fits, key=lambda each: (sum(each.tokens), each), default=None)


def capacities(batches: Sequence[Lengths]) -> list[Capacity]:
    """At most `MOST` capacities for batches like these, with little padding.

    From quantiles of the tokens of each side, one number after the other takes the value with which
    all batches have the fewest tokens, as long as that helps.

    Args:
        batches: lengths `(2, sentences)` of each.
    """
    source, target = (int(max(each[side].max() for each in batches)) for side in range(2))
    sentences = int(MORE_SENTENCES * max(each.shape[1] for each in batches)) + 1
    tokens = _multiple(np.array([each.sum(axis=1) for each in batches]))
    values = _multiple(np.quantile(tokens, np.linspace(0, 1, VALUES), axis=0))
    chosen = _multiple(np.quantile(tokens, np.linspace(0, 1, MOST + 1)[1:], axis=0))
    least, before = _padded(tokens, chosen), math.inf
    while least < before:
        before = least
        for place in np.ndindex(chosen.shape):
            for value in np.unique(values[:, place[1]]):
                other = chosen.copy()
                other[place] = value
                if (count := _padded(tokens, other)) < least:
                    least, chosen = count, other
    return [
        Capacity((most_source, most_target), sentences, (source, target))
        for most_source, most_target in np.unique(chosen, axis=0).tolist()
    ]


def _multiple(tokens: NDArray[Any]) -> NDArray[np.int64]:
    return (-(-tokens // MULTIPLE) * MULTIPLE).astype(np.int64)


def _padded(tokens: NDArray[np.int64], chosen: NDArray[np.int64]) -> float:
    """Tokens of all batches in the smallest capacity that holds each."""
    sizes = np.where((tokens[:, None] <= chosen).all(axis=2), chosen.sum(axis=1), np.inf)
    smallest = np.minimum(sizes.min(axis=1), EAGER * tokens.sum(axis=1))
    return float(smallest.sum())
