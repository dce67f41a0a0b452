"""Memory of a training: an estimate, the largest batch, and smaller batches if memory runs out.

`max_tokens` changes no update. So when memory runs out in any rank, all ranks halve it, split the
same update again and recompute it (`Step.accumulate`).
"""

from __future__ import annotations

import gc
import os
import re
from itertools import chain

import torch

from nmtdeep.config import model as config
from nmtdeep.config import slots
from nmtdeep.config.model import SIDES
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import Batch, Indices
from nmtdeep.data.batching import divide
from nmtdeep.data.windows import Window
from nmtdeep.errors import OutOfMemoryError, UserError
from nmtdeep.model.build import build
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.loss import CHUNK, GPU_CHUNK
from nmtdeep.training.optimizer import linear_maps
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.units import size

# Measured on Linux with torch 2.13 for CPUs (docs/log/performance-2026.md): Python with torch,
# NumPy and this program, and about 1 MB of generated code for each of the 1,024 shapes of products
# that oneDNN keeps.
PROGRAM = 1.55e9
UNLIMITED = 2**62
# Tokens of a typical sentence, for the attention weights.
TYPICAL = 30
FP32 = 4  # bytes of a number
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


def kept_bytes(
    recipe: Recipe, sentences: float, source: int, target: int, product: int = FP32
) -> float:
    """About how many bytes a forward pass keeps for the backward pass on a CPU.

    Counted for pre-norm layers of self-attention, cross-attention and feed-forward maps: inputs of
    norms and products, split heads and attention weights in fp32, activations, and masks of
    dropout, and what `combination_numbers` counts. With `checkpoint_activations` only this and
    inputs of layers are kept, and one layer with its gradients while it is recomputed.

    R-Drop computes every sentence twice.

    Args:
        source, target: positions of each sentence, padding included.
        product: bytes of a number in products of weights: 2 in bf16, 4 in fp32.
    """
    model = recipe.model
    sentences *= 2 if recipe.training.regularizer.type == "r_drop" else 1
    encoder, decoder, drop = model.encoder, model.decoder, model.dropout
    widths = [model.width_of(side) for side in SIDES]
    masks = 1 if drop.residual else 0
    kept = {"relu": 1, "gelu": 2, "swish": 2, "geglu": 4, "swiglu": 4}[model.activation]
    inner = product * (kept + 2 * bool(drop.activation))
    weights = FP32 * (2 if drop.attention else 1)
    per_source = widths[0] * (product * (3 + 2 * masks) + FP32 * 5) + inner * encoder.feed_forward
    per_target = widths[1] * (product * (5 + 3 * masks) + FP32 * 7) + inner * decoder.feed_forward
    memory = widths[1] * (FP32 * 2 + (product if product < FP32 else 0))
    lower = source * (per_source + weights * encoder.heads * source)
    upper = target * (per_target + weights * decoder.heads * (source + target)) + memory * source
    # A Runge-Kutta layer is computed `order` times.
    lower *= getattr(encoder.residual, "order", 1)
    upper *= getattr(decoder.residual, "order", 1)
    combined = FP32 * source * combination_numbers(encoder, widths[0])
    combined += FP32 * target * combination_numbers(decoder, widths[1])
    if recipe.training.checkpoint_activations != "none":
        inputs = encoder.depth * widths[0] * source + decoder.depth * widths[1] * target
        return sentences * (FP32 * inputs + combined + 2 * upper)
    return sentences * (encoder.depth * lower + decoder.depth * upper + combined)


def combination_numbers(stack: config.Stack, width: int) -> float:
    """Numbers that a stack's layer combination keeps of each position.

    A linear combination keeps every output and its gradient. Of each sublayer, hyper-connections
    keep the streams, their norm if dynamic, what was mixed of them and the output, and attention
    residuals the output and two numbers for each query.
    """
    count = stack.depth * len(stack.sublayers)
    match stack.combination:
        case slots.PlainStack():
            return 0
        case slots.HyperConnections(streams=n, weights="dynamic"):
            return count * ((3 * n + 1) * width + 2 * n * n)
        case slots.HyperConnections(streams=n):
            return count * (2 * n + 1) * width
        case slots.ManifoldHyperConnections(streams=n, iterations=steps):
            return count * ((2 * n + 1) * width + 2 * steps * n * n)
        case slots.AttentionResiduals():
            return count * (width + 2 * count)
        case _:
            return 2 * width * (stack.depth + 1)


def estimate(
    recipe: Recipe, model: Transformer, device: str, dtype: torch.dtype
) -> dict[str, float]:
    """Bytes that one rank of a training holds at its peak, by what they are for.

    Weights, and gradients and moments of trained parameters, are in fp32. On a GPU only its own
    memory counts. Some kernels of a GPU keep less than those of a CPU, which are counted. The
    corpus is not: the system maps it into free memory.

    Args:
        device: its type, cpu or cuda.
        dtype: of the products of weights.
    """
    training = recipe.training
    parameters = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    # Muon has one moment for each number of a matrix, Adam two.
    matrices = linear_maps((model.encoder, model.decoder)) * (training.optimizer.type == "muon")
    moments = 2 * trained - sum(matrix.numel() for matrix in matrices if matrix.requires_grad)
    tokens = at_once(recipe, device)
    activations = kept_bytes(recipe, tokens / TYPICAL, TYPICAL, TYPICAL, dtype.itemsize)
    types, width = model.output.weight.shape
    # Logits of a chunk and their gradients; the gradient of the output matrix, twice.
    chunk = CHUNK if device == "cpu" else GPU_CHUNK
    loss = 2 * FP32 * types * (min(chunk, tokens) + width)
    parts = {
        "weights": float(FP32 * parameters),
        "gradients": float(FP32 * trained),
        "moments": float(FP32 * moments),
        "batch": activations + loss,
    }
    if training.ema:
        parts["average"] = float(FP32 * parameters)
    if device == "cpu":
        # Freed memory is kept (`memory.keep_memory`), and batches of other shapes leave gaps in it:
        # measured, about as much again as a batch needs.
        parts |= {"program": PROGRAM, "gaps": parts["batch"]}
    return parts


def at_once(recipe: Recipe, device: str) -> int:
    """The most tokens that go through the model of a stage at once on a type of device."""
    batches, rows = recipe.training.batches, recipe.uses_rows(device)
    tokens = min(batches.limit(rows=rows), batches.tokens_per_update)
    return tokens if rows else min(tokens, batches.group_tokens)


def check_model_fits(model: config.Model, *, source_types: int, target_types: int) -> None:
    """Check that the weights of a model are smaller than the memory of this machine.

    A few lines of a recipe can describe any number of layers of any width. Here they are built
    without memory.

    Raises:
        UserError: naming both sizes.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with torch.device("meta"):
            shapes = build(model, source_types=source_types, target_types=target_types)
        needed = FP32 * sum(parameter.numel() for parameter in shapes.parameters())
    except RuntimeError:  # a tensor whose bytes torch cannot count in 63 bits
        needed = 2**63
    if needed > memory:
        raise UserError(
            f"the weights of this model take {size(needed)}, and this machine has {size(memory)}",
            hint="lower model.width, a depth or feed_forward",
        )


def largest_batch(window: Window, recipe: Recipe, *, rows: bool = False, ranks: int = 1) -> Indices:
    """The batch that keeps most for the backward pass; sentences by position in the window.

    Args:
        rows, ranks: as of `batching.divide`.
    """

    def kept(batch: Indices) -> float:
        lengths = window.lengths[:, batch]
        if rows:
            return float(lengths.sum())
        return kept_bytes(recipe, len(batch), *lengths.max(axis=1).tolist())

    limit = recipe.training.batches.limit(rows=rows)
    divided = (
        divide(window.lengths, update, limit, rows=rows, ranks=ranks) for update in window.updates
    )
    return max(chain.from_iterable(divided), key=kept)


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

    def parts(self, batch: Batch) -> list[Batch]:
        """The batch, in as few parts as the limit allows."""
        count = batch.sentences
        most = max(self.tokens * count // batch.cells, 1)
        if most >= count:
            return [batch]
        return [batch.part(first, first + most) for first in range(0, count, most)]

    def reduce(self, tokens: int) -> bool:
        """Take the smallest limit that any rank asks for; all ranks must call this.

        Returns:
            Whether it is smaller than before.
        """
        before, self.tokens = self.tokens, -int(self.ranks.maximum(-tokens)[0])
        return self.tokens < before

    def half(self, part: Batch | None, error: Exception) -> int:
        """A smaller limit, half of the part that was computed, if `error` says that memory ran out.

        Raises:
            OutOfMemoryError: if that part cannot be divided.
            Exception: any other `error`.
        """
        if part is None or not is_out_of_memory(error):
            raise error
        tokens = min(part.cells, self.tokens)  # a part of rows may have more than the limit
        if self.divisible and part.sentences > 1:
            return tokens // 2
        whole = f"batches of a sharded model cannot be divided, so pass --max-tokens {tokens // 2}"
        raise too_large(part, SMALLER if self.divisible else whole) from error

    def fit(self, batch: Batch, recipe: Recipe, dtype: torch.dtype, free: int) -> None:
        """Lower the limit until `free` bytes hold what a part of `batch` keeps.

        For a CPU, because Linux kills a process without an error. Three quarters of the estimate
        count, because it may be a quarter too large. All ranks must call this.

        Args:
            dtype: of the products of weights.

        Raises:
            OutOfMemoryError: if they do not hold one sentence pair.
        """
        sides = batch.longest
        pairs = int(free / (0.75 * kept_bytes(recipe, 1, *sides, dtype.itemsize)))
        if pairs < 1:
            raise too_large(batch.part(0, 1))
        self.reduce(pairs * max(sides) if pairs < batch.sentences else self.tokens)


def too_large(batch: Batch, hint: str = SMALLER) -> OutOfMemoryError:
    """The error for a batch that does not fit and cannot be divided."""
    pairs, (source, target) = batch.sentences, batch.longest
    where = f"training sentence {batch.indices[0] + 1}" if len(batch.indices) else "one pair"
    if pairs > 1:
        where = f"a batch of {pairs} pairs"
    what = f"out of memory with {source} source and {target} target tokens"
    where += f" of {batch.corpus}" * bool(batch.corpus)
    return OutOfMemoryError(what, where=where, hint=hint)
