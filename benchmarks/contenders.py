"""The contenders of the training benchmark, from one recipe and the same starting weights."""

import re
from collections.abc import Callable
from pathlib import Path

import naive
import torch
from torch import Tensor

from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batching import Batch, Share
from nmtdeep.model.build import build, initialise
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.optimiser import make_optimiser
from nmtdeep.training.update import batch_loss, train_update

LR = 1e-4
YARDSTICK, TUNED = "naive, SDPA", "naive, tuned"
KERNELS = {YARDSTICK: naive.sdpa, TUNED: naive.written_out}
PARTS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}
LEAVES = {"qkv": "inputs", "output": "output", "inner": "0", "outer": "2"}
Step = Callable[[Batch], float]


def adapt(path: Path, shape: naive.Shape, *, tokens: int, norm: str | None = None) -> Recipe:
    """The recipe at `path` in another shape, with dropout 0.1 where `base` models have it."""
    overrides = [
        f"model.width={shape.width}",
        "model.embeddings.sharing=all",
        "model.dropout={embedding: 0.1, residual: 0.1, attention: 0, activation: 0}",
        f"training.batches.tokens_per_update={tokens}",
        f"training.batches.group_tokens={tokens}",
        f"training.batches.max_tokens={tokens}",
        "training.label_smoothing=0.1",
        "training.clip_norm=0",
    ]
    for side in ("encoder", "decoder"):
        overrides += [
            f"model.{side}.depth={getattr(shape, side)}",
            f"model.{side}.heads={shape.heads}",
            f"model.{side}.feed_forward={shape.feed_forward}",
        ]
        if norm:
            overrides.append(f"model.{side}.residual={norm}")
    return load_recipe(str(path), overrides)


def build_ours(recipe: Recipe, types: int) -> Transformer:
    model = build(recipe.model, source_types=types, target_types=types)
    initialise(model, recipe.model, seed=recipe.training.seed)
    return model


def build_naive(
    recipe: Recipe, ours: Transformer, kernel: naive.Kernel, *, dropout: float
) -> naive.NaiveTransformer:
    """The naive model of the same shape with the same weights."""
    model, encoder, decoder = recipe.model, recipe.model.encoder, recipe.model.decoder
    shape = naive.Shape(
        model.width, encoder.feed_forward, encoder.heads, encoder.depth, decoder.depth
    )
    made = naive.NaiveTransformer(
        ours.output.weight.shape[0],
        shape,
        pre_norm=encoder.residual.type == "pre_norm",
        dropout=dropout,
        pad=ours.pad,
        kernel=kernel,
    )
    made.to(ours.output.weight.dtype)
    made.load_state_dict(renamed(dict(ours.named_parameters())))
    return made


def renamed(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters, or their gradients, under the names and in the packing of the naive model."""
    theirs: dict[str, Tensor] = {"embedding.weight": ours["source_embedding.weight"]}
    for name, value in ours.items():
        top = re.fullmatch(r"(encoder|decoder)\.norm\.(\w+)", name)
        inner = re.fullmatch(
            r"(encoder|decoder)\.layers\.(\d+)\.sublayers\.(\d+)\.(?:sublayer\.)?(\w+)\.(\w+)", name
        )
        if top:
            theirs[f"{top[1]}_norm.{top[2]}"] = value
        elif inner:
            stack, layer, number, leaf, kind = inner.groups()
            part = f"{stack}.{layer}.{PARTS[stack][int(number)]}"
            if leaf == "norm":
                theirs[f"{stack}.{layer}.norms.{number}.{kind}"] = value
            elif leaf == "query":
                packed = (value, ours[name.replace("query", "key_value")])
                theirs[f"{part}.inputs.{kind}"] = torch.cat(packed)
            elif leaf != "key_value":
                theirs[f"{part}.{LEAVES[leaf]}.{kind}"] = value
    return theirs


def largest_difference(recipe: Recipe, types: int, batch: Batch, *, dtype: torch.dtype) -> float:
    """Between our loss and gradients and the naive ones, relative to the largest of each tensor."""
    smoothing = recipe.training.label_smoothing
    ours = build_ours(recipe, types).to(dtype).eval()
    sums = batch_loss(ours, batch, smoothing=smoothing, dtype=dtype)
    (sums.smoothed / batch.target_tokens).backward()
    gradients = renamed({name: value.grad for name, value in ours.named_parameters()})
    worst = 0.0
    for kernel in KERNELS.values():
        model = build_naive(recipe, ours, kernel, dropout=0.0)
        loss = naive.loss_per_token(
            model,
            batch.source,
            batch.target_input,
            batch.target_output,
            smoothing=smoothing,
            bf16=False,
        )
        loss.backward()
        expected = float(loss.detach())
        worst = max(worst, abs(float(sums.smoothed.detach()) / batch.target_tokens / expected - 1))
        scale = max(float(value.grad.abs().max()) for value in model.parameters())
        for name, value in model.named_parameters():
            gap = float((gradients[name] - value.grad).abs().max())
            worst = max(worst, gap / scale)
    return worst


def our_step(recipe: Recipe, model: Transformer, dtype: torch.dtype) -> Step:
    optimiser = make_optimiser(model, recipe.training.optimiser)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    done = 0

    def step(batch: Batch) -> float:
        nonlocal done
        done += 1
        result = train_update(
            model,
            optimiser,
            scaler,
            Share.whole([batch]),
            update=done,
            lr=LR,
            settings=recipe.training,
            dtype=dtype,
        )
        return result.loss / result.target_tokens

    return step


def naive_step(recipe: Recipe, name: str, ours: Transformer, dtype: torch.dtype) -> Step:
    model = build_naive(recipe, ours, KERNELS[name], dropout=recipe.model.dropout.residual)
    adam = recipe.training.optimiser
    optimiser = torch.optim.Adam(
        model.parameters(),
        lr=LR,
        betas=adam.betas,
        eps=adam.epsilon,
        fused=True if name == TUNED else None,
    )

    def step(batch: Batch) -> float:
        return naive.train_step(
            model,
            optimiser,
            batch.source,
            batch.target_input,
            batch.target_output,
            smoothing=recipe.training.label_smoothing,
            bf16=dtype == torch.bfloat16,
        )

    return step
