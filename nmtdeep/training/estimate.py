"""How much memory a training needs, computed from the recipe before anything is tried."""

from __future__ import annotations

import os

import numpy as np
import torch
from numpy.typing import NDArray

from nmtdeep.config import model as config
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.slots import Relative
from nmtdeep.errors import UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.loss import CHUNK
from nmtdeep.training.optimizer import linear_maps
from nmtdeep.units import size

# Measured on Linux with torch 2.13 for CPUs (docs/log/performance-2026.md): Python
# with torch, NumPy and this program; and what oneDNN and the allocator keep for the shapes of
# products that a training meets in its first hundred updates, about 1 MB each, of which oneDNN
# keeps 1,024.
PROGRAM, GENERATED_CODE = 0.35e9, 1.2e9
# Tokens of a typical sentence, for the attention weights.
TYPICAL = 30
EXACT = 4  # bytes of a number in fp32
# Square matrices of each sublayer, at least.
SQUARES = {"self_attention": 4, "cross_attention": 4, "merged_attention": 3}


def kept_bytes(
    model: config.Model,
    cells: NDArray[np.int64],
    sides: NDArray[np.int32],
    *,
    product: int = EXACT,
    layers: tuple[int, int] | None = None,
    recomputed: bool = False,
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
        recomputed: whether only inputs of layers are kept, and one layer while it is recomputed.
    """
    if recomputed:
        inputs = model.encoder.depth * cells[0] + model.decoder.depth * cells[1]
        layer = kept_bytes(model, cells, sides, product=product, layers=(0, 1))
        return np.asarray(EXACT * model.width * inputs + layer)
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


def estimate(
    recipe: Recipe, model: Transformer, *, device: str, dtype: torch.dtype, data: int = 0
) -> dict[str, float]:
    """Bytes that one rank of a training holds at its peak, by what they are for.

    Weights, gradients and moments are in fp32. On a GPU only its own memory counts: neither the
    program nor the data. Some kernels of a GPU keep less than those of a CPU, which are counted.

    Args:
        device: its type, cpu or cuda.
        dtype: of the products of weights.
        data: bytes of the training corpus, which is mapped into memory.
    """
    training, sizes, product = recipe.training, recipe.model, dtype.itemsize
    parameters = sum(parameter.numel() for parameter in model.parameters())
    matrices = sum(matrix.numel() for matrix in linear_maps((model.encoder, model.decoder)))
    muon = matrices if training.optimizer.type == "muon" else 0
    batches = training.batches
    tokens = min(batches.max_tokens, batches.group_tokens, batches.tokens_per_update)
    cells, sides = np.full(2, tokens), np.full(2, TYPICAL, dtype=np.int32)
    # While a layer's gradients are computed, about as much again is there as it kept.
    layer = kept_bytes(sizes, cells, sides, product=product, layers=(0, 1))
    recomputed = training.checkpoint_activations != "none"
    everything = kept_bytes(sizes, cells, sides, product=product, recomputed=recomputed)
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


def least_parameters(model: config.Model, types: int) -> int:
    """Parameters of the matrices that every such model has; computed, not counted.

    Args:
        types: of the target vocabulary.
    """
    total = types * model.width
    decoder = [part.type for part in model.decoder.sublayers]
    for stack, sublayers in (
        (model.encoder, ["self_attention", "feed_forward"]),
        (model.decoder, decoder),
    ):
        layer = sum(SQUARES.get(name, 0) for name in sublayers) * model.width**2
        layer += sublayers.count("feed_forward") * 2 * model.width * stack.feed_forward
        if isinstance(model.positions, Relative) and "self_attention" in sublayers:
            layer += (2 * model.positions.clip + 1) * (model.width // stack.heads)
        total += stack.depth * layer
    return total


def check_model_fits(
    model: config.Model,
    types: int,
    device: torch.device,
    *,
    numbers: int = 1,
    shards: int = 1,
    memory: int | None = None,
) -> None:
    """Check, before a model is built, that it takes less than all the memory of its device.

    Args:
        types: of the target vocabulary.
        numbers: kept of each parameter: 1 is the weights alone; a training keeps gradients and
            moments as well.
        shards: ranks over which they are spread.
        memory: bytes of the device; None: what it says.

    Raises:
        UserError: naming both sizes.
    """
    if memory is None and device.type == "cuda":
        memory = int(torch.cuda.get_device_properties(device).total_memory)
    elif memory is None:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    parameters = least_parameters(model, types)
    needed = EXACT * numbers * parameters // shards
    if needed > memory:
        name = "this machine" if device.type == "cpu" else "the GPU"
        raise UserError(
            f"a model of at least {parameters:,} parameters takes {size(needed)} for "
            f"{'weights, gradients and moments' if numbers > 1 else 'weights'}, and {name} has "
            f"{size(memory)}",
            hint="lower model.width, a depth or feed_forward, or spread the training over more "
            "GPUs with training.sharding=full",
        )
