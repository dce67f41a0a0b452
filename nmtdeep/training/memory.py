"""Out of memory: one trial of the largest batch, and the same update in smaller parts."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from nmtdeep import memory
from nmtdeep.config import model as config
from nmtdeep.data.batching import Batch, Indices, Share, collate, split
from nmtdeep.data.windows import DataPosition, Epoch, Window
from nmtdeep.errors import OutOfMemoryError
from nmtdeep.training.estimate import estimate, kept_bytes
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.units import size

if TYPE_CHECKING:
    from nmtdeep.training.trainer import Trainer

# Out of memory as allocators say it, apart from torch.OutOfMemoryError: torch's and oneDNN's on a
# CPU, C++, CUDA's libraries. oneDNN's "could not create a primitive" is all that it says when it
# has no memory for generated code; "could not create a primitive descriptor for ..." means that it
# does not support what it was asked for.
SIGNS = re.compile(
    "allocate memory|could not allocate|bad_alloc|alloc_failed|could not create a memory object"
    "|could not create a primitive(?! descriptor)|out of memory",
    re.IGNORECASE,
)
SMALLER = (
    "train a smaller model, set training.checkpoint_activations=layers, or lower "
    "text.clean.max_length and preprocess again"
)
UNLIMITED = 2**62
# Groups whose batches are compared to find the largest.
CANDIDATES = 64


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the device or of the machine.

    The allocators of a CPU raise a plain RuntimeError, whose message is the only sign. This is the
    one place where the program reads a message.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return SIGNS.search(str(error)) is not None


class BatchLimit:
    """The largest batch that is computed at once: smaller after memory has run out in any rank.

    Args:
        divisible: whether a batch may be computed in parts. All ranks of a sharded model must
            compute the same passes, so that there it may not.

    Attributes:
        tokens: sentences times longer side, at most.
    """

    def __init__(self, ranks: Ranks = ALONE, *, divisible: bool = True) -> None:
        self.ranks = ranks
        self.divisible = divisible
        self.tokens = UNLIMITED
        self._part: Batch | None = None

    def parts(self, batch: Batch) -> Iterator[Batch]:
        """The batch, in as many parts as the limit wants."""
        count = len(batch.source)
        most = max(self.tokens // longer_side(batch), 1)
        for first in range(0, count, most):
            self._part = batch if most >= count else batch.rows(first, first + most)
            yield self._part

    def reduce(self, tokens: int) -> bool:
        """Take the smallest limit that any rank asks for; all ranks must call this.

        Returns:
            Whether it is smaller than before.
        """
        before, self.tokens = self.tokens, -int(self.ranks.maximum(-tokens)[0])
        return self.tokens < before

    def half(self, error: Exception) -> int:
        """Half of the part that was computed last, if `error` says that memory ran out.

        Raises:
            OutOfMemoryError: if that part cannot be divided.
            Exception: any other `error`.
        """
        part = self._part
        if part is None or not is_out_of_memory(error):
            raise error
        tokens = len(part.source) * longer_side(part)
        what, hint = "out of memory", SMALLER
        if not self.divisible:
            what += ", and the batches of a sharded model cannot be divided"
            hint = f"pass --max-tokens {max(tokens // 2, 1)}"
        if not self.divisible or len(part.source) == 1:
            raise OutOfMemoryError(what, where=described(part), hint=hint) from error
        return tokens // 2


def release() -> None:
    """Free what is not used any more, in Python and on a GPU."""
    gc.collect()
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


def check_largest_batch(
    trainer: Trainer, position: DataPosition, *, free: int | None = None
) -> int:
    """Compute the largest batch of the window at `position` once, forward and backward.

    If it does not fit, the limit is lower afterwards. On a CPU the limit is lowered beforehand
    until the estimate fits, because Linux kills a process without an error. Model, optimizer and
    random numbers are as before. All ranks must call this.

    Args:
        free: bytes of free memory; None: what the system says.

    Returns:
        The new limit, 0 if the batch fits.

    Raises:
        OutOfMemoryError: if memory does not hold the smallest batch.
    """
    recipe, corpus, step = trainer.recipe, trainer.data.corpus("train"), trainer.step
    batches, device, limit = recipe.training.batches, trainer.ranks.device, step.limit
    window = Epoch(corpus, recipe.training.seed, position.epoch).window(
        position.window,
        group_tokens=batches.group_tokens,
        tokens_per_update=batches.tokens_per_update,
    )
    largest = largest_batch(window, recipe.model, batches.max_tokens)
    batch = collate(corpus, window.indices[largest])
    before = tokens = limit.tokens
    if device.type == "cpu" and limit.divisible:
        free = memory.available() if free is None else free
        share = UNLIMITED if free is None else free // trainer.ranks.local_size
        while _least(trainer, batch, tokens) > share:
            tokens = min(tokens, batches.max_tokens) // 2
            if tokens < longer_side(batch):
                raise OutOfMemoryError(
                    f"needs more memory than the {size(share)} that are free",
                    where=described(batch.rows(0, 1)),
                    hint=SMALLER,
                )
    limit.reduce(tokens)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        step.accumulate(Share.whole([batch.to(device)]), 0)
    step.optimizer.zero_grad(set_to_none=True)
    release()
    return limit.tokens if limit.tokens < before else 0


def _least(trainer: Trainer, batch: Batch, tokens: int) -> float:
    """Bytes needed at once at least: gradients, moments and what a part of `tokens` keeps.

    Of the activations only three quarters count, because the estimate may be a quarter too large.
    """
    recipe, step = trainer.recipe, trainer.step
    sides = np.array([batch.source.shape[1], batch.target_output.shape[1]], dtype=np.int32)
    cells = min(len(batch.source), max(tokens // longer_side(batch), 1)) * sides.astype(np.int64)
    recomputed = recipe.training.checkpoint_activations != "none"
    kept = kept_bytes(
        recipe.model, cells, sides, product=step.dtype.itemsize, recomputed=recomputed
    )
    parts = estimate(recipe, step.model, device="cuda", dtype=step.dtype)
    moments = 0.0 if step.optimizer.state else parts["moments"]
    return parts["gradients"] + moments + 0.75 * float(kept)


def largest_batch(window: Window, model: config.Model, max_tokens: int) -> Indices:
    """The batch that keeps most between forward and backward; sentences by place in the window.

    It is one of the groups that may have the largest batches.
    """
    groups = [group for update in window.updates for group in update]
    sides = np.stack([window.lengths[:, group].max(axis=1) for group in groups], axis=1)
    counts = np.array([len(group) for group in groups])
    # Neither side of a batch has more cells than this, nor is it longer.
    cells = np.minimum(counts * sides, np.maximum(max_tokens, sides))
    order = np.argsort(-kept_bytes(model, cells, sides), kind="stable")[:CANDIDATES].tolist()

    def weight(batch: Indices) -> float:
        longest = window.lengths[:, batch].max(axis=1)
        return float(kept_bytes(model, len(batch) * longest, longest))

    return max(split(window.lengths, [groups[number] for number in order], max_tokens), key=weight)
