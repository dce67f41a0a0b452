"""The contenders of the training benchmark, from one recipe and the same starting weights."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import Batch, RankBatches
from nmtdeep.model.build import build, initialize
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.loss import batch_loss
from nmtdeep.training.step import Step as TrainingStep

if TYPE_CHECKING:
    from marian import Marian

LR = 1e-4
Step = Callable[[Batch], Tensor | float]
MARIAN = {"MarianMT, SDPA": "sdpa", "MarianMT, eager": "eager"}  # its kernels of attention


@dataclass(frozen=True)
class Shape:
    """Sizes, written 256/1024/4/6+6: width, feed-forward width, heads, encoder + decoder layers."""

    width: int
    feed_forward: int
    heads: int
    encoder: int
    decoder: int

    @classmethod
    def parse(cls, text: str) -> "Shape":
        width, feed_forward, heads, depths = text.split("/")
        encoder, decoder = depths.split("+")
        return cls(int(width), int(feed_forward), int(heads), int(encoder), int(decoder))

    def __str__(self) -> str:
        return f"{self.width}/{self.feed_forward}/{self.heads}/{self.encoder}+{self.decoder}"


def adapt(
    path: Path | str,
    shape: Shape,
    *,
    tokens: int,
    norm: str,
    overrides: Iterable[str] = (),
) -> Recipe:
    """The recipe at `path` in another shape, with dropout 0.1 where `base` models have it."""
    changes = [
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
        changes += [
            f"model.{side}.depth={getattr(shape, side)}",
            f"model.{side}.heads={shape.heads}",
            f"model.{side}.feed_forward={shape.feed_forward}",
            f"model.{side}.residual={norm}",
        ]
    return load_recipe(str(path), [*changes, *overrides])


def build_ours(recipe: Recipe, types: int, device: torch.device | None = None) -> Transformer:
    model = build(recipe.model, source_types=types, target_types=types)
    initialize(model, recipe.model, seed=recipe.training.seed)
    return model.to(device or torch.device("cpu"))


def loss_per_token(model: "Marian", batch: Batch, *, smoothing: float, bf16: bool) -> Tensor:
    """Label-smoothed loss with eps / (V - 1) on each class but the target, full logits.

    torch spreads s over all V classes, the target included: s = eps V / (V - 1) is the same.
    """
    with torch.autocast(batch.source.device.type, dtype=torch.bfloat16, enabled=bf16):
        logits = model(batch.source, batch.target_input)
    if bf16:
        logits = logits.float()
    types = logits.shape[-1]
    loss = cross_entropy(
        logits.flatten(0, 1),
        batch.target_output.flatten(),
        ignore_index=model.pad,
        label_smoothing=smoothing * types / (types - 1),
        reduction="sum",
    )
    return loss / batch.target_tokens


def largest_difference(recipe: Recipe, ours: Transformer, batch: Batch) -> float:
    """Between our loss and gradients and MarianMT's, relative to the largest of all.

    `ours` and `batch` are on one device; dropout is off.
    """
    import marian

    smoothing = recipe.training.label_smoothing
    ours.eval().zero_grad()
    sums = batch_loss(ours, batch, smoothing=smoothing, dtype=ours.output.weight.dtype)
    (sums.smoothed / batch.target_tokens).backward()
    expecting = marian.renamed({name: value.grad for name, value in ours.named_parameters()})
    ours.zero_grad()
    worst = 0.0
    for attention in MARIAN.values():
        model = marian.build(recipe, ours, dropout=0.0, attention=attention).eval()
        loss = loss_per_token(model, batch, smoothing=smoothing, bf16=False)
        loss.backward()
        expected = float(loss.detach())
        worst = max(worst, abs(float(sums.smoothed.detach()) / batch.target_tokens / expected - 1))
        theirs = {
            name: parameter.grad
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        scale = max(float(value.abs().max()) for value in theirs.values())
        for name, value in theirs.items():
            worst = max(worst, float((expecting[name] - value).abs().max()) / scale)
    return worst


def our_step(recipe: Recipe, model: Transformer, dtype: torch.dtype) -> Step:
    trainer = TrainingStep(model, recipe.training, dtype=dtype)
    done = 0

    def step(batch: Batch) -> float:
        nonlocal done
        done += 1
        result = trainer.update(RankBatches.single([batch]), done, LR)
        return result.loss / result.target_tokens

    return step


def peer_step(recipe: Recipe, attention: str, ours: Transformer, dtype: torch.dtype) -> Step:
    import marian

    dropout = recipe.model.dropout.residual
    model = marian.build(recipe, ours, dropout=dropout, attention=attention).train()
    adam = recipe.training.optimizer
    optimizer = torch.optim.Adam(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=LR,
        betas=adam.betas,
        eps=adam.epsilon,
        fused=True,
    )
    smoothing, bf16 = recipe.training.label_smoothing, dtype == torch.bfloat16

    def step(batch: Batch) -> Tensor:
        optimizer.zero_grad()
        loss = loss_per_token(model, batch, smoothing=smoothing, bf16=bf16)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def products_step(model: Transformer, dtype: torch.dtype) -> Step:
    """The products with the weights of our model and their two gradients, and nothing else."""
    maps = [
        (
            name.startswith("encoder") or name.endswith(".key_value"),
            module.weight.detach().to(dtype),
        )
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]

    def step(batch: Batch) -> float:
        source, target = (
            int((ids != model.pad).sum()) for ids in (batch.source, batch.target_output)
        )
        for reads_source, weight in maps:
            x = weight.new_ones(source if reads_source else target, weight.shape[1])
            y = x @ weight.t()
            torch.mm(y, weight, out=x)
            torch.mm(y.t(), x)
        return math.nan

    return step
