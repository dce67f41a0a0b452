"""Training speed against peers.

    python benchmarks/training.py --data DIR [--updates N] [--repeats N] [--precisions fp32]

DIR is a data directory of nmtdeep preprocess; for the usual figures Multi30k with recipe
multi30k-en-de and text.bpe.merges=8000. nmtdeep's own update and
Hugging Face's MarianMT (both of its attention kernels; extra [benchmark]) take turns on the same
batches, from the same weights, with the same dropout, smoothing and learning rate, each in a
process of its own, which pads its batches itself. Ratios are formed
within a turn. Before any timing, loss and gradients of all are compared (no dropout).

On a machine that others use too, wall-clock time says little, and threads that wait for each other
suffer most: read the ratio of CPU time there, with --threads 1, where no waiting counts as work.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from apart import Measured, measure
from contenders import (
    MARIAN,
    Shape,
    Step,
    adapt,
    build_ours,
    largest_difference,
    our_step,
    peer_step,
    products_step,
)
from machine import (
    add_options,
    chosen_device,
    empty_table,
    installed,
    native_precisions,
    opening,
)
from rich.table import Table
from turns import Spent, spread
from work import Work

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import read_batch
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE

OURS, BEST = "nmtdeep", "best peer"
PRODUCTS = "products alone"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOLERANCE = 1e-9  # of loss and gradients in float64; in fp32 a ReLU near 0 may differ


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training speed against peers")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument("--updates", type=int, default=10, help="updates in a turn")
    parser.add_argument("--precisions", choices=tuple(DTYPES), nargs="+")
    parser.add_argument("--shape", type=Shape.parse, default="256/1024/4/6+6")
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens of an update")
    add_options(parser, repeats=5)
    return parser.parse_args()


def contender(
    stack: ExitStack, options: argparse.Namespace, name: str, precision: str
) -> tuple[torch.device, Callable[[], float]]:
    """One of them in this process: its device, and its turn, which returns the last loss."""
    device = chosen_device(options, keeps_memory=name == OURS)
    data, recipe = DataDirectory.open(options.data), our_recipe(options)
    ours = build_ours(recipe, len(data.pipeline.target.vocabulary), device)
    dtype = DTYPES[precision]
    step: Step
    if name == OURS:
        step = our_step(recipe, ours, dtype)
    elif name == PRODUCTS:
        step = products_step(ours, dtype)
    else:
        step = peer_step(recipe, MARIAN[name], ours, dtype)
        del ours
    work = Work.choose(data.corpus("train"), tokens=options.tokens, updates=options.updates)

    def turn() -> float:
        for batch in work.batches(device):
            loss = step(batch)
        return float(loss)

    turn()  # creates the moments
    return device, turn


def report(measured: Measured, work: Work, title: str) -> Table:
    turns = measured.turns
    table = empty_table(
        title,
        "nmtdeep over it: speed ratio within a turn, median (least to most), above 1 where "
        "nmtdeep is faster;\nMB: at the peak, beyond what is held between updates",
        ("contender", "target tokens/s", "nmtdeep over it", "by CPU time", "MB", "loss"),
    )
    for name in turns.spent:
        ratios = ("", "")
        if name != OURS:
            ratios = tuple(spread(turns.ratios([name], OURS, clock)) for clock in Spent._fields)
        table.add_row(
            name,
            f"{work.target_tokens / turns.median(name):,.0f}",
            *ratios,
            f"{measured.memory[name] / 2**20:,.0f}",
            f"{measured.results[name]:.3f}",
        )
    best = (spread(turns.ratios([*MARIAN], OURS, clock)) for clock in Spent._fields)
    table.add_row(BEST, "", *best, style="bold")
    return table


def our_recipe(options: argparse.Namespace) -> Recipe:
    """The data's own recipe in the shape of the options."""
    path = options.data / RECIPE_FILE
    return adapt(path, options.shape, tokens=options.tokens, norm="post_norm")


def main() -> None:
    options = parsed()
    if not installed("transformers"):
        sys.exit('transformers is not installed: pip install -e ".[benchmark]"')
    device, console = opening(options)
    data = DataDirectory.open(options.data)
    recipe = our_recipe(options)
    types = len(data.pipeline.target.vocabulary)
    work = Work.choose(data.corpus("train"), tokens=options.tokens, updates=options.updates)
    model = build_ours(recipe, types, device)
    few = read_batch(work.corpus, work.plan[0][:8]).to(device)
    gap = largest_difference(recipe, model.double(), few)
    if gap > TOLERANCE:
        sys.exit(f"MarianMT computes something else: relative difference {gap:.1e}")
    console.print(
        f"{options.shape}, post-norm, {types:,} types, "
        f"{sum(value.numel() for value in model.parameters()):,} parameters; {len(work.plan)} "
        f"updates a turn: {work.pairs.shape[1]:,} sentences, {work.target_tokens:,} target tokens, "
        f"{work.padding:.1%} padding; loss and gradients equal to {gap:.0e} of the largest "
        "(float64, no dropout)"
    )
    for precision in options.precisions or native_precisions(device):
        names = [OURS, PRODUCTS, *MARIAN]
        arguments = {name: (options, name, precision) for name in names}
        measured = measure(contender, arguments, repeats=options.repeats)
        title = f"training, {precision}; {options.repeats} turns"
        console.print(report(measured, work, title))


if __name__ == "__main__":
    main()
