"""Training speed against a naive torch loop and against the bare matrix products.

    python benchmarks/training.py --data DIR [--updates N] [--repeats N] [--precision fp32]

DIR is a data directory of nmtdeep preprocess; for the usual figures Multi30k with recipe
multi30k-en-de and text.bpe.merges=8000. In one process, nmtdeep's own update and the two variants
of benchmarks/naive.py take turns on the same batches, from the same weights, with the same dropout,
smoothing and learning rate, each collating its batches itself. Ratios are formed within a turn.
Before any timing, loss and gradients of the two are compared (fp32, no dropout).

On a machine that others use too, wall-clock time says little, and threads that wait for each other
suffer most: read the ratio of CPU time there, with --threads 1, where no waiting counts as work.

The floor is the time of the matrix products of all weights alone, forwards and backwards, measured
in the same turns at the model's own shapes on the padded positions; attention's small products and
everything else count nothing in it.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import naive
import torch
from contenders import (
    KERNELS,
    adapt,
    build_ours,
    largest_difference,
    naive_step,
    our_step,
)
from floor import Spent, Work, clocks, floor, products, since
from machine import machine
from rich.console import Console
from rich.table import Table

from nmtdeep.config.recipe import Recipe
from nmtdeep.data import batching
from nmtdeep.data.corpus import RECIPE_FILE, DataDirectory

WARM_UP = 1  # updates of each contender before the first turn
OURS, FLOOR = "nmtdeep", "products alone"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training speed against a naive torch loop")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument("--updates", type=int, default=10, help="updates in a turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each contender")
    parser.add_argument("--precision", choices=("fp32", "bf16", "both"), default="both")
    parser.add_argument("--shape", type=naive.Shape.parse, default="256/1024/4/6+6")
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens of an update")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    parser.add_argument("--norm", choices=("pre_norm", "post_norm"), help="default: the recipe's")
    return parser.parse_args()


@dataclass
class Measured:
    """What each turn took by contender, and the loss each ended with."""

    spent: dict[str, list[Spent]]
    losses: dict[str, float]

    def ratios(self, others: list[str], clock: str) -> list[float]:
        """The best of `others` against us, turn by turn: above 1, we are faster."""
        turns = zip(*(self.seconds(name, clock) for name in others), strict=True)
        pairs = zip(turns, self.seconds(OURS, clock), strict=True)
        return [min(turn) / ours for turn, ours in pairs]

    def seconds(self, name: str, clock: str) -> list[float]:
        return [getattr(turn, clock) for turn in self.spent[name]]


def measure(recipe: Recipe, types: int, work: Work, dtype: torch.dtype, repeats: int) -> Measured:
    ours = build_ours(recipe, types)
    steps = {name: naive_step(recipe, name, ours, dtype) for name in KERNELS}
    steps = {OURS: our_step(recipe, ours, dtype), **steps}
    found = Measured({name: [] for name in (*steps, FLOOR)}, {})
    for step in steps.values():
        for _, batch in zip(range(WARM_UP), work.batches(), strict=False):
            step(batch)
    for _ in range(repeats):
        for name, step in steps.items():
            started = clocks()
            for batch in work.batches():
                found.losses[name] = step(batch)
            found.spent[name].append(since(started))
        found.spent[FLOOR].append(floor(ours, work, dtype))
    return found


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def report(found: Measured, work: Work, flops: int, precision: str) -> Table:
    threads, turns = torch.get_num_threads(), len(found.spent[OURS])
    table = Table(
        title=f"training, {precision}; threads: {threads}; medians of {turns} turns",
        caption="nmtdeep over it: speed ratio within a turn, median (least to most), above 1 where "
        "nmtdeep is faster;\nover the products alone, it is the share of the floor that it reaches",
    )
    headings = ("contender", "target tokens/s", "nmtdeep over it", "tokens/CPU s", "by CPU time")
    for heading in (*headings, "GFLOP/CPU s", "loss"):
        table.add_column(heading, justify="left" if heading == "contender" else "right")
    rows = {name: [name] for name in found.spent} | {"best naive": list(KERNELS)}
    for row, names in rows.items():
        ratios = [spread(found.ratios(names, clock)) for clock in Spent._fields]
        if row not in found.spent:
            table.add_row(row, "", ratios[0], "", ratios[1], "", "", style="bold")
            continue
        wall, cpu = (statistics.median(found.seconds(row, clock)) for clock in Spent._fields)
        table.add_row(
            row,
            f"{work.target_tokens / wall:,.0f}",
            "" if row == OURS else ratios[0],
            f"{work.target_tokens / cpu:,.0f}",
            "" if row == OURS else ratios[1],
            f"{flops / cpu / 1e9:,.0f}",
            f"{found.losses[row]:.3f}" if row in found.losses else "",
        )
    return table


def main() -> None:
    settings = arguments()
    if settings.threads:
        torch.set_num_threads(settings.threads)
    console = Console(width=112)
    console.print(machine(), highlight=False)
    data = DataDirectory.open(settings.data)
    path = settings.data / RECIPE_FILE
    recipe = adapt(path, settings.shape, tokens=settings.tokens, norm=settings.norm)
    types = len(data.pipeline.target.vocabulary)
    work = Work.choose(data.corpus("train"), tokens=settings.tokens, updates=settings.updates)
    few = batching.collate(work.corpus, work.plan[0][:8])
    gap = largest_difference(recipe, types, few, dtype=torch.float32)
    if gap > 1e-4:
        sys.exit(f"the naive loop computes something else: relative difference {gap:.1e}")
    model = build_ours(recipe, types)
    flops = sum(product.flops for product in products(model, work))
    console.print(
        f"{settings.shape}, {recipe.model.encoder.residual.type}, {types:,} types, "
        f"{sum(value.numel() for value in model.parameters()):,} parameters; {len(work.plan)} "
        f"updates a turn: {sum(map(len, work.plan)):,} sentences, {work.target_tokens:,} target "
        f"tokens, {flops / 1e9:,.0f} GFLOP in products with weights, "
        f"{100 - 100 * work.real_tokens / (work.source + work.target):.1f} % padding; loss and "
        f"gradients equal the naive loop's to {gap:.0e} of the largest (fp32, no dropout)",
        highlight=False,
    )
    chosen = ("fp32", "bf16") if settings.precision == "both" else (settings.precision,)
    for precision in chosen:
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        found = measure(recipe, types, work, dtype, settings.repeats)
        console.print(report(found, work, flops, precision))


if __name__ == "__main__":
    main()
