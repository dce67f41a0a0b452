"""Whether bf16 learns as fp32 does: both from the same weights on the same batches.

    python benchmarks/curves.py --data DIR [--updates 300] [--window 25]

Three trainings side by side: fp32, bf16, and fp32 once more with other dropout, which says how
much two trainings that differ in nothing that matters differ (the noise). Printed: means of the
training loss over windows of updates, and the largest difference of any window from fp32.
"""

import argparse
import statistics
from pathlib import Path

import naive
import torch
from contenders import adapt, build_ours
from machine import add_options, opening
from rich.table import Table
from work import Work

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batching import Share
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE
from nmtdeep.training.optimizer import make_optimizer
from nmtdeep.training.update import train_update

BASE, LOW, NOISE = "fp32", "bf16", "fp32, other dropout"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Loss curves of fp32 and bf16")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument("--shape", type=naive.Shape.parse, default="256/1024/4/6+6")
    parser.add_argument("--norm", choices=("pre_norm", "post_norm"), default="post_norm")
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens of an update")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--window", type=int, default=25, help="updates of a mean")
    parser.add_argument("--lr", type=float, default=1e-3, help="reached linearly, then kept")
    parser.add_argument("--warm-up", type=int, default=100, help="updates until then")
    add_options(parser, repeats=1)
    return parser.parse_args()


def losses(
    recipe: Recipe,
    types: int,
    work: Work,
    options: argparse.Namespace,
    *,
    name: str,
    seed: int,
    device: torch.device,
) -> list[float]:
    """Loss per target token of every update, from the weights of the recipe's own seed."""
    model = build_ours(recipe, types, device)
    optimizer = make_optimizer(model, recipe.training.optimizer)
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    training = recipe.training.model_copy(update={"seed": seed})
    found = []
    for number, batch in enumerate(work.batches(device), start=1):
        result = train_update(
            model,
            optimizer,
            scaler,
            Share.whole([batch]),
            update=number,
            lr=options.lr * min(1.0, number / options.warm_up),
            settings=training,
            dtype=torch.bfloat16 if name == LOW else torch.float32,
        )
        found.append(result.loss / result.target_tokens)
    return found


def windows(curve: list[float], size: int) -> list[float]:
    """Means of `size` updates each; what is left over at the end is dropped."""
    return [
        statistics.fmean(curve[first : first + size])
        for first in range(0, len(curve) - size + 1, size)
    ]


def largest(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def main() -> None:
    options = arguments()
    device, console = opening(options)
    data = DataDirectory.open(options.data)
    recipe = adapt(
        options.data / RECIPE_FILE, options.shape, tokens=options.tokens, norm=options.norm
    )
    types = len(data.pipeline.target.vocabulary)
    work = Work.choose(data.corpus("train"), tokens=options.tokens, updates=options.updates)
    seeds = {BASE: recipe.training.seed, LOW: recipe.training.seed, NOISE: recipe.training.seed + 1}
    curves = {
        name: windows(
            losses(recipe, types, work, options, name=name, seed=seed, device=device),
            options.window,
        )
        for name, seed in seeds.items()
    }
    table = Table(
        title=f"loss per target token, {options.shape}, {options.norm}, {len(work.plan)} updates",
        caption=f"means of {options.window} updates each",
    )
    for heading in ("updates", *curves):
        table.add_column(heading, justify="right")
    for number, row in enumerate(zip(*curves.values(), strict=True)):
        first = number * options.window + 1
        table.add_row(f"{first}-{first + options.window - 1}", *(f"{value:.4f}" for value in row))
    console.print(table)
    gap, noise = (largest(curves[BASE], curves[name]) for name in (LOW, NOISE))
    console.print(
        f"largest difference of a window from {BASE}: {LOW} {gap:.4f}, {NOISE} {noise:.4f}; "
        f"ratio {gap / noise:.2f}"
    )


if __name__ == "__main__":
    main()
