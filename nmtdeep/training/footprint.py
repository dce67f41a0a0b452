"""How much memory a training needs, computed from the recipe before anything is tried."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from nmtdeep.config import Recipe
from nmtdeep.config import model as config
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.loss import CHUNK
from nmtdeep.training.optimizer import linear_maps

# Measured on Linux with torch 2.13 for CPUs (docs/log/performance-2026.md): Python
# with torch, NumPy and this program; and what oneDNN and the allocator keep for the shapes of
# products that a training meets in its first hundred updates, about 1 MB each, of which oneDNN
# keeps 1,024.
PROGRAM, GENERATED_CODE = 0.35e9, 1.2e9
# Tokens of a typical sentence, for the attention weights.
TYPICAL = 30
EXACT = 4  # bytes of a number in fp32


def kept_bytes(
    model: config.Model,
    cells: NDArray[np.int64],
    sides: NDArray[np.int32],
    *,
    product: int = EXACT,
    layers: tuple[int, int] | None = None,
) -> NDArray[np.float64]:
    """About how many bytes a forward pass keeps for the backward pass on a CPU.

    Counted for pre-norm layers of self-attention, cross-attention and feed-forward maps: inputs of
    norms and products, split heads and attention weights in fp32, ReLUs, and masks of dropout. A
    linear combination of layers keeps every output and its gradient as well.

    Args:
        cells: `(2, ...)` of source and target, padding included.
        sides: `(2, ...)` the longest source and target.
        product: bytes of a number in products of weights: 2 in bf16, 4 in fp32.
        layers: of encoder and decoder; None: all of them.
    """
    source, target = sides.astype(np.float64)
    encoder, decoder, width, drop = model.encoder, model.decoder, model.width, model.dropout
    masks = 1 if drop.residual else 0
    inner = product * (3 if drop.activation else 1)
    weights = EXACT * (2 if drop.attention else 1)
    per_source = width * (product * (3 + 2 * masks) + EXACT * 5) + inner * encoder.feed_forward
    per_target = width * (product * (5 + 3 * masks) + EXACT * 7) + inner * decoder.feed_forward
    memory = width * (EXACT * 2 + (product if product < EXACT else 0))
    own = per_source + weights * encoder.heads * source
    upper = per_target + weights * decoder.heads * (source + target)
    below, above = layers or (encoder.depth, decoder.depth)
    sums = [
        2 * EXACT * width * (depth + 1) * (stack.combination.type != "residual")
        for stack, depth in ((encoder, below), (decoder, above))
    ]
    return np.asarray(
        (below * own + above * memory + sums[0]) * cells[0] + (above * upper + sums[1]) * cells[1]
    )


def memory_parts(
    recipe: Recipe, model: Transformer, *, device: str, product: int, data: int = 0
) -> dict[str, float]:
    """Bytes that one process of a training holds at its peak, by what they are for.

    Weights, gradients and moments are in fp32. On a GPU only its own memory counts: neither the
    program nor the data. Some kernels of a GPU keep less than those of a CPU, which are counted.

    Args:
        device: its type, cpu or cuda.
        product: bytes of a number in products of weights: 2 in bf16, 4 in fp32.
        data: bytes of the training text, which is mapped into memory.
    """
    training, sizes = recipe.training, recipe.model
    parameters = sum(one.numel() for one in model.parameters())
    matrices = sum(one.numel() for one in linear_maps((model.encoder, model.decoder)))
    muon = matrices if training.optimizer.type == "muon" else 0
    batches = training.batches
    tokens = min(batches.max_tokens, batches.group_tokens, batches.tokens_per_update)
    cells, sides = np.full(2, tokens), np.full(2, TYPICAL, dtype=np.int32)
    # While a layer's gradients are computed, about as much again is there as it kept.
    layer = kept_bytes(sizes, cells, sides, product=product, layers=(0, 1))
    everything = kept_bytes(sizes, cells, sides, product=product)
    if training.checkpoint_activations == "layers":
        depth = sizes.encoder.depth + sizes.decoder.depth
        everything = np.asarray(EXACT * sizes.width * depth * tokens) + layer
    types, width = model.output.weight.shape
    # The logits of a chunk, and again as the gradient's product lays them out; the gradient of the
    # output matrix, the newest chunk's share of it, and its copy on the way back.
    loss = 2 * product * min(CHUNK, tokens) * types + (2 * EXACT + product) * types * width
    batch = float(everything + layer) + loss
    cast = product * parameters if product < EXACT else 0
    # Muon's step: the directions before and after, and two copies on the way.
    step = 4.0 * EXACT * muon
    parts = {
        "weights": float(EXACT * parameters),
        "gradients": float(EXACT * parameters),
        "moments": float(EXACT * (2 * parameters - muon)),
        "batch": max(batch + cast, step),
    }
    if device == "cpu":
        parts |= {"program": PROGRAM, "generated code": GENERATED_CODE, "data": float(data)}
        # Freed memory is kept (`memory.keep_memory`), and batches of other shapes leave gaps in it:
        # measured, about as much again as a batch needs.
        parts["gaps"] = parts["batch"]
    return parts


def mapped_bytes(data: DataDirectory) -> int:
    """Bytes of the training corpus's ids and offsets."""
    corpus = data.corpus("train")
    return sum(side.tokens.nbytes + side.offsets.nbytes for side in (corpus.source, corpus.target))


def product_bytes(dtype: torch.dtype) -> int:
    """Of a number in products of weights, when these are computed in `dtype`."""
    return torch.finfo(dtype).bits // 8
