"""Training speed against peers and against what the machine can do at best.

    python benchmarks/training.py --data DIR [--updates N] [--repeats N] [--precision fp32]

DIR is a data directory of nmtdeep preprocess; for the usual figures Multi30k with recipe
multi30k-en-de and text.bpe.merges=8000. nmtdeep's own update, the two variants of
benchmarks/naive.py, torch's nn.Transformer and Hugging Face's MarianMT (both of its attention
kernels; extra [benchmark]) take turns on the same batches, from the same weights, with the same
dropout, smoothing and learning rate, each collating its batches itself, each in a process of its
own. Ratios are formed within a turn. Before any timing, loss and gradients of all are compared (no
dropout).

On a machine that others use too, wall-clock time says little, and threads that wait for each other
suffer most: read the ratio of CPU time there, with --threads 1, where no waiting counts as work.

With --processes N, nmtdeep train with N processes that share the threads takes its turns too, timed
by its own log.

Two bounds: the products of all weights alone at the model's own shapes, timed in the same turns;
and the floor, operations over the measured rate of one large matrix product or bytes over the
measured rate of one large copy, whichever takes longer.
"""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import naive
import torch
from apart import Apart
from contenders import (
    Step,
    adapt,
    build_ours,
    largest_difference,
    our_step,
    peer_step,
    peers,
)
from floor import Rates, measured_rates, products_alone, utilization
from machine import add_options, chosen_device, machine
from memory import megabytes
from processes import second_half, short
from rich.console import Console
from rich.table import Table
from turns import Spent, Turns, spread, take_turns
from work import Cost, Work, training_cost

from nmtdeep.config.recipe import Recipe
from nmtdeep.data import batching
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE
from nmtdeep.model.transformer import Transformer

OURS, PRODUCTS, BEST = "nmtdeep", "products alone", "best peer"
TOGETHER = "nmtdeep, several processes"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOLERANCE = 1e-4  # of loss and gradients in fp32


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training speed against peers")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument("--updates", type=int, default=10, help="updates in a turn")
    parser.add_argument("--precision", choices=("fp32", "bf16", "both"), default="both")
    parser.add_argument("--shape", type=naive.Shape.parse, default="256/1024/4/6+6")
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens of an update")
    parser.add_argument("--norm", choices=("pre_norm", "post_norm"), default="post_norm")
    parser.add_argument(
        "--processes", type=int, default=1, help="also time nmtdeep train with so many processes"
    )
    parser.add_argument("--only", nargs="+", metavar="PEER", help="these peers (default: all)")
    add_options(parser, repeats=5)
    return parser.parse_args()


class Measured(NamedTuple):
    """Of one precision: turns, bytes at the peak beyond those held between updates, last losses."""

    turns: Turns
    memory: dict[str, int]
    losses: dict[str, float]


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
    else:
        step = peer_step(recipe, peers(recipe)[name], ours, dtype)
        del ours
    work = Work.choose(data.corpus("train"), tokens=options.tokens, updates=options.updates)

    def turn() -> float:
        for batch in work.batches(device):
            found = step(batch)
        return float(found)

    turn()  # makes the moments
    return device, turn


def measure(
    options: argparse.Namespace,
    precision: str,
    names: Sequence[str],
    work: Work,
    model: Transformer,
) -> Measured:
    """All contenders in turns; `model` has the products of the floor."""
    with ExitStack() as stack:
        apart = {
            name: stack.enter_context(closing(Apart(contender, options, name, precision)))
            for name in names
        }
        return _turns(options, precision, apart, work, model)


def _turns(
    options: argparse.Namespace,
    precision: str,
    apart: dict[str, Apart],
    work: Work,
    model: Transformer,
) -> Measured:
    # Two whose seconds are not those of their turn: the products are computed from a few of each
    # shape, and several processes need time to start.
    alone: list[Spent] = []
    crew: list[Spent] = []

    def products() -> None:
        alone.append(products_alone(model, work, DTYPES[precision]))

    def together() -> None:
        speed = trained(options, precision, options.processes)["tokens_per_second"]
        crew.append(Spent(work.target_tokens / speed, math.nan))

    runs: dict[str, Callable[[], None]] = {**apart, PRODUCTS: products}
    if options.processes > 1:
        runs[TOGETHER] = together
    take_turns(runs, repeats=options.repeats)
    spent = {name: [done.spent for done in one.turns] for name, one in apart.items()}
    spent |= {PRODUCTS: alone} | ({TOGETHER: crew} if crew else {})
    return Measured(
        Turns(spent),
        {name: one.memory for name, one in apart.items()},
        {name: one.turns[-1].result for name, one in apart.items()},
    )


def report(found: Measured, work: Work, cost: Cost, rates: Rates, title: str) -> Table:
    turns, floor = found.turns, rates.seconds(cost)
    table = Table(
        title=title,
        caption="nmtdeep over it: speed ratio within a turn, median (least to most), above 1 where "
        "nmtdeep is faster;\nfloor: its time over the contender's; MB: at the peak, beyond what "
        "is held between updates",
    )
    for heading in ("contender", "target tokens/s", "nmtdeep over it", "by CPU time", "floor"):
        table.add_column(heading, justify="left" if heading == "contender" else "right")
    table.add_column("MB", justify="right")
    table.add_column("loss", justify="right")
    for name in turns.spent:
        ratios = ("", "")
        if name != OURS:
            ratios = tuple(spread(turns.ratios([name], OURS, clock)) for clock in Spent._fields)
        if name == TOGETHER:
            ratios = (ratios[0], "")
        seconds = turns.median(name)
        table.add_row(
            name,
            f"{work.target_tokens / seconds:,.0f}",
            *ratios,
            f"{floor / seconds:.2f}",
            megabytes(found.memory[name]) if name in found.memory else "",
            f"{found.losses[name]:.3f}" if name in found.losses else "",
        )
    others = [name for name in turns.spent if name not in (OURS, PRODUCTS, TOGETHER)]
    if others:
        best = (spread(turns.ratios(others, OURS, clock)) for clock in Spent._fields)
        table.add_row(BEST, "", *best, style="bold")
    if others and TOGETHER in turns.spent:
        table.add_row(
            f"{TOGETHER}, over it", "", spread(turns.ratios(others, TOGETHER)), style="bold"
        )
    return table


def trained(options: argparse.Namespace, precision: str, processes: int = 1) -> dict[str, float]:
    """What the procedure behind nmtdeep train logs of as many updates as a turn has."""
    overrides = [*short(options.updates), f"training.precision={precision}"]
    overrides += [f"training.batches.max_tokens={options.tokens // processes}"]
    recipe = our_recipe(options, overrides)
    return second_half(recipe, options.data, processes=processes, device=options.device)


def waiting(options: argparse.Namespace, precision: str) -> str:
    """What the procedure behind nmtdeep train says of itself: its speed, its wait for data."""
    record = trained(options, precision)
    return (
        f"nmtdeep train, {precision}: {record['tokens_per_second']:,.0f} target tokens/s, "
        f"{record['padding']:.1%} padding, {record['wait']:.2%} of the time waiting for data"
    )


def our_recipe(options: argparse.Namespace, overrides: Sequence[str] = ()) -> Recipe:
    """The data's own recipe in the shape of the options."""
    return adapt(
        options.data / RECIPE_FILE,
        options.shape,
        tokens=options.tokens,
        norm=options.norm,
        overrides=overrides,
    )


def main() -> None:
    options = arguments()
    device = chosen_device(options, keeps_memory=False)
    console = Console(width=112, highlight=False)
    console.print(machine(device))
    data = DataDirectory.open(options.data)
    recipe = our_recipe(options)
    others = peers(recipe)
    if options.only:
        others = {name: peer for name, peer in others.items() if name in options.only}
    types = len(data.pipeline.target.vocabulary)
    work = Work.choose(data.corpus("train"), tokens=options.tokens, updates=options.updates)
    model = build_ours(recipe, types, device)
    few = batching.collate(work.corpus, work.plan[0][:8]).to(device)
    gap = largest_difference(recipe, model, few, others)
    if gap > TOLERANCE:
        sys.exit(f"the peers compute something else: relative difference {gap:.1e}")
    cost = training_cost(model, work)
    console.print(
        f"{options.shape}, {recipe.model.encoder.residual.type}, {types:,} types, "
        f"{sum(value.numel() for value in model.parameters()):,} parameters; {len(work.plan)} "
        f"updates a turn: {work.pairs.shape[1]:,} sentences, {work.target_tokens:,} target tokens, "
        f"{work.padding:.1%} padding, {cost.operations / 1e9:,.0f} GFLOP and "
        f"{cost.bytes / 1e9:,.1f} GB at least; loss and gradients equal to {gap:.0e} of the "
        f"largest (fp32, no dropout)"
    )
    chosen = tuple(DTYPES) if options.precision == "both" else (options.precision,)
    for precision in chosen:
        rates = measured_rates(device, DTYPES[precision])
        found = measure(options, precision, [OURS, *others], work, model)
        title = f"training, {precision}; {options.repeats} turns; the machine: {rates}"
        console.print(report(found, work, cost, rates, title))
        seconds = found.turns.median(OURS)
        console.print(f"{OURS}: {utilization(cost, seconds, rates, device, DTYPES[precision])}")
        console.print(waiting(options, precision))


if __name__ == "__main__":
    main()
