"""Training speed against peers.

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

With --processes N, `nmtdeep train` with N processes that share the threads takes its turns too,
timed by its own log.
"""

import argparse
import json
import math
import sys
import tempfile
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
    products_step,
)
from machine import add_options, chosen_device, empty_table, machine
from memory import megabytes
from rich.console import Console
from rich.table import Table
from turns import Spent, Turns, spread, take_turns
from work import Work

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import read_batch
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE
from nmtdeep.training.loop import train
from nmtdeep.training.run_directory import RECORDS

OURS, BEST = "nmtdeep", "best peer"
TOGETHER, PRODUCTS = "nmtdeep, several processes", "products alone"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOLERANCE = 1e-9  # of loss and gradients in float64; in fp32 a ReLU near 0 may differ


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training speed against peers")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument("--updates", type=int, default=10, help="updates in a turn")
    parser.add_argument("--precision", choices=("fp32", "bf16", "both"), default="both")
    parser.add_argument("--shape", type=naive.Shape.parse, default="256/1024/4/6+6")
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens of an update")
    parser.add_argument("--norm", choices=("pre_norm", "post_norm"), default="post_norm")
    parser.add_argument(
        "--processes", type=int, default=1, help="also time nmtdeep train with this many processes"
    )
    add_options(parser, repeats=5)
    return parser.parse_args(words)


class Measured(NamedTuple):
    """Results in one precision: turns, bytes at the peak beyond those between updates, losses."""

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
    elif name == PRODUCTS:
        step = products_step(ours, dtype)
    else:
        step = peer_step(recipe, peers(recipe)[name], ours, dtype)
        del ours
    work = Work.choose(data.corpus("train"), tokens=options.tokens, updates=options.updates)

    def turn() -> float:
        for batch in work.batches(device):
            loss = step(batch)
        return float(loss)

    turn()  # creates the moments
    return device, turn


def measure(
    options: argparse.Namespace,
    precision: str,
    names: Sequence[str],
    work: Work,
    apart: type[Apart],
) -> Measured:
    """All contenders in turns; `apart` opens one of them."""
    trained_together: list[Spent] = []  # by the log: several processes need time to start

    def together() -> None:
        speed = trained(options, precision, options.processes)["tokens_per_second"]
        trained_together.append(Spent(work.target_tokens / speed, math.nan))

    with ExitStack() as stack:
        contenders = {
            name: stack.enter_context(closing(apart(contender, options, name, precision)))
            for name in names
        }
        runs: dict[str, Callable[[], None]] = dict(contenders)
        if options.processes > 1:
            runs[TOGETHER] = together
        take_turns(runs, repeats=options.repeats)
        spent = {name: [done.spent for done in each.turns] for name, each in contenders.items()}
        return Measured(
            Turns(spent | ({TOGETHER: trained_together} if trained_together else {})),
            {name: each.memory for name, each in contenders.items()},
            {name: each.turns[-1].result for name, each in contenders.items()},
        )


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
        if name == TOGETHER:
            ratios = (ratios[0], "")
        table.add_row(
            name,
            f"{work.target_tokens / turns.median(name):,.0f}",
            *ratios,
            megabytes(measured.memory[name]) if name in measured.memory else "",
            f"{measured.losses[name]:.3f}" if name in measured.losses else "",
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
    """The log of `nmtdeep train` for the updates of a turn, after as many to warm up."""
    updates = options.updates
    recipe = our_recipe(
        options,
        [
            f"training.precision={precision}",
            f"training.batches.max_tokens={options.tokens // processes}",
            f"training.max_updates={2 * updates}",
            f"training.log_every={updates}",
            f"training.validation={{every: {2 * updates}, bleu: false, best_by: loss}}",
            f"training.checkpoints={{every: {2 * updates}, average_last: 0}}",
        ],
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        train(
            recipe,
            data=options.data,
            out=out,
            processes=processes,
            device=options.device,
            quiet=True,
        )
        records = [json.loads(line) for line in (out / RECORDS).read_text().splitlines()]
    return [record for record in records if record["kind"] == "train"][-1]


def waiting(options: argparse.Namespace, precision: str) -> str:
    """The speed of `nmtdeep train` by its own log, and the time that it waits for data."""
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


def main(words: Sequence[str] | None = None, apart: type[Apart] = Apart) -> None:
    options = arguments(words)
    device = chosen_device(options, keeps_memory=False)
    console = Console(width=112, highlight=False)
    console.print(machine(device))
    data = DataDirectory.open(options.data)
    recipe = our_recipe(options)
    others = peers(recipe)
    types = len(data.pipeline.target.vocabulary)
    work = Work.choose(data.corpus("train"), tokens=options.tokens, updates=options.updates)
    model = build_ours(recipe, types, device)
    few = read_batch(work.corpus, work.plan[0][:8]).to(device)
    gap = largest_difference(recipe, model.double(), few, others)
    if gap > TOLERANCE:
        sys.exit(f"the peers compute something else: relative difference {gap:.1e}")
    console.print(
        f"{options.shape}, {recipe.model.encoder.residual.type}, {types:,} types, "
        f"{sum(value.numel() for value in model.parameters()):,} parameters; {len(work.plan)} "
        f"updates a turn: {work.pairs.shape[1]:,} sentences, {work.target_tokens:,} target tokens, "
        f"{work.padding:.1%} padding; loss and gradients equal to {gap:.0e} of the largest "
        "(float64, no dropout)"
    )
    for precision in DTYPES if options.precision == "both" else (options.precision,):
        measured = measure(options, precision, [OURS, PRODUCTS, *others], work, apart)
        title = f"training, {precision}; {options.repeats} turns"
        console.print(report(measured, work, title))
        console.print(waiting(options, precision))


if __name__ == "__main__":
    main()
