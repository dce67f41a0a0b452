"""The contenders of the training benchmark, from one recipe and the same starting weights."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import naive
import torch
from machine import installed
from torch import Tensor, nn

from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import Batch, RankBatches
from nmtdeep.model.build import build, initialize
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.loss import batch_loss
from nmtdeep.training.step import Step as TrainingStep

LR = 1e-4
Step = Callable[[Batch], Tensor | float]


class Peer(NamedTuple):
    """Another program's model with our weights.

    Attributes:
        build: `(recipe, ours, dropout=p)` to a module from ids of both sides to logits.
        renamed: our parameters, or their gradients, under its names.
    """

    build: Callable[..., nn.Module]
    renamed: Callable[[dict[str, Tensor]], dict[str, Tensor]]


def build_naive(recipe: Recipe, ours: Transformer, *, dropout: float) -> naive.NaiveTransformer:
    """The naive model of the same shape with the same weights."""
    model, encoder, decoder = recipe.model, recipe.model.encoder, recipe.model.decoder
    weight = ours.output.weight
    network = naive.NaiveTransformer(
        weight.shape[0],
        naive.Shape(model.width, encoder.feed_forward, encoder.heads, encoder.depth, decoder.depth),
        dropout=dropout,
        pad=ours.pad,
    )
    network.to(weight.device, weight.dtype)
    network.load_state_dict(naive.plain(dict(ours.named_parameters())))
    return network


PEERS = {"naive": Peer(build_naive, naive.plain)}
MARIAN = {"MarianMT, SDPA": "sdpa", "MarianMT, eager": "eager"}


def peers() -> dict[str, Peer]:
    """Those that are installed; all of them are post-norm."""
    if installed("transformers") is None:
        return dict(PEERS)
    import marian

    theirs = {
        name: Peer(partial(marian.build, attention=attention), marian.renamed)
        for name, attention in MARIAN.items()
    }
    return PEERS | theirs


def adapt(
    path: Path | str,
    shape: naive.Shape,
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


def largest_difference(
    recipe: Recipe,
    ours: Transformer,
    batch: Batch,
    others: dict[str, Peer],
) -> float:
    """Between our loss and gradients and those of `others`, relative to the largest of all.

    `ours` and `batch` are on one device; dropout is off.
    """
    smoothing = recipe.training.label_smoothing
    ours.eval().zero_grad()
    sums = batch_loss(ours, batch, smoothing=smoothing, dtype=ours.output.weight.dtype)
    (sums.smoothed / batch.target_tokens).backward()
    gradients = {name: value.grad for name, value in ours.named_parameters()}
    ours.zero_grad()
    worst = 0.0
    for peer in others.values():
        model = peer.build(recipe, ours, dropout=0.0).eval()
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
        theirs = {
            name: parameter.grad
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        scale = max(float(value.abs().max()) for value in theirs.values())
        expecting = peer.renamed(gradients)
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


def peer_step(recipe: Recipe, peer: Peer, ours: Transformer, dtype: torch.dtype) -> Step:
    model = peer.build(recipe, ours, dropout=recipe.model.dropout.residual)
    adam = recipe.training.optimizer
    optimizer = torch.optim.Adam(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=LR,
        betas=adam.betas,
        eps=adam.epsilon,
        fused=True,
    )

    def step(batch: Batch) -> Tensor:
        return naive.train_step(
            model,
            optimizer,
            batch.source,
            batch.target_input,
            batch.target_output,
            smoothing=recipe.training.label_smoothing,
            bf16=dtype == torch.bfloat16,
        )

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
