"""Memory of a training: its peak, the largest batch, and smaller batches if memory runs out.

`max_tokens` changes no update. So when memory runs out in any rank, all ranks halve it, split the
same update again and recompute it (`Step.forward_backward`).
"""

from __future__ import annotations

import gc
import os
import re
import resource
import sys
from functools import partial
from itertools import chain

import torch

from nmtdeep.config import model as config
from nmtdeep.data.batch import Batch
from nmtdeep.data.batching import Indices, batches_of_update
from nmtdeep.data.plan import Window
from nmtdeep.errors import OutOfMemoryError, UserError
from nmtdeep.model.build import build
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.setup import Setup
from nmtdeep.units import size

UNLIMITED = 2**62
# Out of memory as allocators say it, apart from torch.OutOfMemoryError: torch's and oneDNN's on a
# CPU, C++, CUDA's libraries. oneDNN's "could not create a primitive" is all that it says when it
# has no memory for generated code; "could not create a primitive descriptor for ..." means that it
# does not support an operation.
SIGNS = re.compile(
    "allocate memory|could not allocate|bad_alloc|alloc_failed|could not create a memory object"
    "|could not create a primitive(?! descriptor)|out of memory",
    re.IGNORECASE,
)
SMALLER = (
    "train a smaller model, set training.checkpoint_activations=layers, or lower "
    "text.clean.max_length and preprocess again"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the device or of the machine.

    The allocators of a CPU raise a plain RuntimeError, whose message is the only sign. This is the
    one place where the program reads a message.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return SIGNS.search(str(error)) is not None


def release() -> None:
    """Free unused memory, in Python and on a GPU."""
    gc.collect()
    torch.cuda.empty_cache()


def peak_memory(device: torch.device) -> int:
    """Bytes at the peak: of the GPU's allocations, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def check_model_fits(model: config.Model, *, source_types: int, target_types: int) -> None:
    """Check that the weights of a model are smaller than the memory of this machine.

    Raises:
        UserError: naming both sizes.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with torch.device("meta"):
            shapes = build(model, source_types=source_types, target_types=target_types)
        needed = 4 * sum(parameter.numel() for parameter in shapes.parameters())
    except RuntimeError:  # a tensor whose bytes torch cannot count in 63 bits
        needed = 2**63
    if needed > memory:
        raise UserError(
            f"the weights of this model take {size(needed)}, and this machine has {size(memory)}",
            hint="lower model.width, a depth or feed_forward",
        )


def largest_batch(window: Window, setup: Setup) -> Indices:
    """The batch that keeps most for the backward pass; sentences by position in the window."""
    width, heads = setup.recipe.model.width, setup.recipe.model.encoder.heads

    def kept(batch: Indices) -> int:
        lengths = window.lengths[:, batch]
        if setup.packed:
            return int(lengths.sum())
        longest = lengths.max(axis=1)  # each token has activations of some widths, and attention
        return len(batch) * int(longest.sum()) * (8 * width + heads * int(longest.max()))

    divide = partial(
        batches_of_update, max_tokens=setup.max_tokens, packed=setup.packed, ranks=setup.ranks.size
    )
    batches = (divide(window.lengths, update) for update in window.updates)
    return max(chain.from_iterable(batches), key=kept)


class BatchLimit:
    """The largest batch that is computed at once: smaller after memory has run out in any rank."""

    def __init__(self, ranks: Ranks = ALONE) -> None:
        self.ranks = ranks
        self.tokens = UNLIMITED  # sentences times longer side, at most

    def parts(self, batch: Batch) -> list[Batch]:
        """The batch, in as few parts as the limit allows."""
        count = batch.sentences
        most = max(self.tokens * count // batch.cells, 1)
        if most >= count:
            return [batch]
        return [batch.part(first, first + most) for first in range(0, count, most)]

    def reduce(self, tokens: int, *, again: bool = False) -> tuple[bool, bool]:
        """Take the smallest limit that any rank asks for.

        All ranks must call this.

        Returns:
            Whether the limit is smaller than before, and whether any rank has asked with `again`.
        """
        before = self.tokens
        fewest, asked = self.ranks.all_reduce_max(-tokens, again)
        self.tokens = -int(fewest)
        return self.tokens < before, bool(asked)

    def half(self, part: Batch | None, error: Exception) -> int:
        """A smaller limit, half of the part that was computed, if `error` says that memory ran out.

        Raises:
            OutOfMemoryError: if that part cannot be divided.
            Exception: any other `error`.
        """
        if part is None or not is_out_of_memory(error):
            raise error
        if part.sentences > 1:
            return min(part.cells, self.tokens) // 2  # a packed part may have more than the limit
        raise too_large(part) from error


def too_large(batch: Batch) -> OutOfMemoryError:
    """The error for a batch that does not fit and cannot be divided."""
    source, target = batch.longest
    where = f"training sentence {batch.indices[0] + 1}" if len(batch.indices) else "one pair"
    if batch.corpus:
        where += f" of {batch.corpus}"
    what = f"out of memory with {source} source and {target} target tokens"
    return OutOfMemoryError(what, where=where, hint=SMALLER)
