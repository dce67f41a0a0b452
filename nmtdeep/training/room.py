"""Memory that runs out: the batch is computed in parts, and the update stays the same."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from functools import partial

import torch

from nmtdeep.data.batching import Batch
from nmtdeep.errors import OutOfMemoryError

# What allocators say, apart from torch.OutOfMemoryError: torch's and oneDNN's on a CPU, C++, CUDA's
# libraries. oneDNN's "could not create a primitive" is all that it says when it has no memory for
# generated code; "could not create a primitive descriptor for ..." means that it does not support
# what it was asked for.
SIGNS = re.compile(
    "can't allocate memory"
    "|cannot allocate memory"
    "|could not allocate"
    "|bad_alloc"
    "|alloc_failed"
    "|could not create a memory object"
    "|could not create a primitive(?! descriptor)"
    "|out of memory",
    re.IGNORECASE,
)
SMALLER = (
    "train a smaller model, give training.checkpoint_activations=layers, or lower "
    "text.clean.max_length and preprocess again"
)


class Room:
    """How large a batch this process computes at once, as far as it has been found out.

    Args:
        divides: whether a batch may be computed in parts. All processes of a sharded model must
            compute the same passes, so that there it may not.

    Attributes:
        tokens: sentences times longer side, at most; 0: nothing has failed yet.
    """

    def __init__(self, *, divides: bool = True) -> None:
        self.divides = divides
        self.tokens = 0

    def parts(self, batch: Batch) -> Iterator[Batch]:
        """The batch, in as many parts as fit."""
        count = len(batch.source)
        most = max(self.tokens // longer_side(batch), 1) if self.tokens else count
        if most >= count:
            yield batch
            return
        for first in range(0, count, most):
            yield batch.rows(first, first + most)

    def holds(self, batch: Batch, compute: Callable[[Batch], None]) -> bool:
        """Whether memory sufficed to `compute` this; if not, later batches are smaller.

        Raises:
            OutOfMemoryError: if the batch cannot be made smaller.
        """
        if suffices(partial(compute, batch)):
            return True
        size = len(batch.source) * longer_side(batch)
        if not self.divides:
            raise OutOfMemoryError(
                f"memory ran out in {described(batch)}, and the batches of a sharded model cannot "
                f"be divided on the way: give --max-tokens {max(size // 2, 1)}"
            )
        if len(batch.source) == 1:
            raise OutOfMemoryError(f"memory ran out in {described(batch)}: {SMALLER}")
        self.tokens = size // 2
        return False


def suffices(compute: Callable[[], None]) -> bool:
    """Whether memory sufficed to `compute`; if not, what it held is free again."""
    try:
        compute()
        return True
    except (RuntimeError, MemoryError) as error:
        if not is_about_memory(error):
            raise
    release()  # not before the traceback is gone, which holds all activations
    return False


def is_about_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the device or of the machine."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return SIGNS.search(str(error)) is not None


def release() -> None:
    """Let go of what nobody uses, in Python and on a GPU."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def longer_side(batch: Batch) -> int:
    """Positions of its longer side, padding included."""
    return max(batch.source.shape[1], batch.target_output.shape[1])


def described(batch: Batch) -> str:
    """A batch in words; a single pair by its number in the training corpus."""
    source, target = batch.source.shape[1], batch.target_output.shape[1]
    lengths = f"{source} source and {target} target tokens"
    if len(batch.source) > 1:
        return f"a batch of {len(batch.source)} pairs of up to {lengths}"
    number = f"training sentence {batch.indices[0] + 1}" if len(batch.indices) else "one pair"
    return f"{number} of {lengths}"
