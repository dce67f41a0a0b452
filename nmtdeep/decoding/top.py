"""The greatest elements of each row of a long matrix."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64


def best_of_each(x: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest of each row and where it stands first, `(rows, 1)` each."""
    inside = _top_blocks(x, 1)
    best, place = x.gather(1, inside).max(dim=1, keepdim=True)
    return best, inside.gather(1, place)


def top_of_each(x: Tensor, count: int) -> Tensor:
    """Columns of the `count` greatest elements of each row, ascending; ties go to the first ones.

    They lie in the `count` blocks of columns with the greatest maxima: a scan for maxima and a
    choice among few are much faster than `topk` on rows of thousands.
    """
    inside = _top_blocks(x, count)
    return inside.gather(1, first_of_each(x.gather(1, inside), count))


def _top_blocks(x: Tensor, count: int) -> Tensor:
    """Columns, ascending, of the `count` blocks with the greatest maxima, and of the last ones."""
    columns = torch.arange(x.shape[1], device=x.device)
    blocks = x.shape[1] // BLOCK
    if blocks <= count:
        return columns.expand(len(x), -1)
    whole, rest = columns[: blocks * BLOCK].view(blocks, BLOCK), columns[blocks * BLOCK :]
    chosen = first_of_each(x[:, : blocks * BLOCK].unflatten(1, whole.shape).amax(dim=2), count)
    return torch.cat((whole[chosen].flatten(1), rest.expand(len(x), -1)), dim=1)


def first_of_each(x: Tensor, count: int) -> Tensor:
    """Columns of the `count` greatest elements of each row, ascending; ties go to the first ones.

    `topk` gives the last place to any of those that tie for it.
    """
    best, index = x.topk(count, dim=1)
    least = best[:, -1:]
    crowded = ((x >= least).sum(dim=1, keepdim=True) > count) & least.isfinite()
    # Asking costs a GPU more than the few operations that are saved.
    if x.device.type != "cpu" or bool(crowded.any()):
        above, tied = x > least, x == least
        room = count - above.sum(dim=1, keepdim=True)
        chosen = above | (tied & (tied.cumsum(dim=1) <= room))
        index = chosen.to(torch.uint8).topk(count, dim=1).indices
    return index.sort(dim=1).values
