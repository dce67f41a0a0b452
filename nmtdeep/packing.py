"""Where sentences are in a packed batch: one after the other, without padding.

A GPU is fast on many tokens at once, and sentences of all lengths in one padded batch would be more
padding than text. All parts of a model that treat each position by itself take a packed batch as
`(1, tokens, width)`; attention must know where each sentence ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Packing(NamedTuple):
    """The sentences of one side of a packed batch.

    Attributes:
        offsets: `(sentences + 1,)` int32, the first token of each sentence, and all tokens.
        places: `(tokens,)` int64, sentence times `longest` plus position: where each token is in
            the same batch with padding.
        longest: number of tokens of the longest sentence.
    """

    offsets: Tensor
    places: Tensor
    longest: int

    @classmethod
    def of(
        cls, lengths: NDArray[np.int64], *, sentences: int = 0, longest: int | None = None
    ) -> Packing:
        """Sentences of these lengths.

        Args:
            sentences: with empty ones, at least; attention skips these.
            longest: a greater number than that of the longest sentence; None: that number.
        """
        lengths = np.concatenate((lengths, np.zeros(max(sentences - len(lengths), 0), np.int64)))
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        longest = longest or int(lengths.max())
        before = np.arange(len(lengths)) * longest - offsets[:-1]
        places = np.arange(offsets[-1]) + np.repeat(before, lengths)
        return cls(torch.from_numpy(offsets.astype(np.int32)), torch.from_numpy(places), longest)

    @property
    def sentences(self) -> int:
        """Number of sentences."""
        return len(self.offsets) - 1

    @property
    def positions(self) -> Tensor:
        """`(tokens,)` position of each token in its sentence, from 0."""
        return self.places % self.longest

    @property
    def mask(self) -> Tensor:
        """`(sentences, 1, 1, longest)`, True at real tokens of the batch with padding.

        And at the first cell of an empty sentence, which no token reads: a softmax needs one.
        """
        columns = torch.arange(self.longest, device=self.offsets.device)
        return (columns < self.offsets.diff().clamp(min=1)[:, None])[:, None, None]

    def pad(self, x: Tensor) -> Tensor:
        """`(1, tokens, width)` as `(sentences, longest, width)`, zeros at the end."""
        cells = x.new_zeros(self.sentences * self.longest, x.shape[2])
        return cells.index_copy(0, self.places, x[0]).view(self.sentences, self.longest, -1)

    def pack(self, x: Tensor) -> Tensor:
        """Undo `pad`."""
        return x.flatten(0, 1).index_select(0, self.places)[None]

    def to(self, device: torch.device) -> Packing:
        """The same sentences on `device`."""
        return Packing(
            to_device(self.offsets, device), to_device(self.places, device), self.longest
        )

    def part(self, first: int, last: int) -> Packing:
        """Sentences `first` to `last`, the latter excluded."""
        lengths = self.offsets.diff()[first:last].cpu().numpy().astype(np.int64)
        return Packing.of(lengths).to(self.offsets.device)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of a CPU on `device`; a GPU copies it while the host goes on."""
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
