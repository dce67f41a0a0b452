"""The cost of depth in a training update, and of layer combinations at a depth.

    python benchmarks/depth.py --data DIR [--depths 6 24 48] [--repeats N]

Encoders of each depth with a residual stack; at the greatest depth also DLCL, sparse blocks, and
activation checkpointing; all with one decoder. They take turns in one process on the same batches;
ratios are formed within a turn. The paper's own dense connections made 48 layers 1.87 times slower
(Li et al. 2020).
"""

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import naive
import torch
from contenders import Step, adapt, build_ours, our_step
from machine import add_options, empty_table, opening
from memory import megabytes, peak_increase
from rich.table import Table
from turns import Turns, spread, take_turns
from work import Work

from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE

COMBINATIONS = {"DLCL": "dlcl", "sparse blocks": "sparse_blocks"}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Cost of depth and of layer combinations")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument("--shape", type=naive.Shape.parse, default="256/1024/4/6+6")
    parser.add_argument("--depths", type=int, nargs="+", default=[6, 24, 48], help="encoder layers")
    parser.add_argument("--norms", nargs="+", default=["pre_norm", "post_norm"])
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens of an update")
    parser.add_argument("--updates", type=int, default=1, help="updates in a turn")
    parser.add_argument("--precision", choices=tuple(DTYPES), default="fp32")
    add_options(parser, repeats=3)
    return parser.parse_args(words)


def variants(depths: list[int]) -> dict[str, tuple[int, list[str]]]:
    """Name to encoder depth and overrides of the recipe; the first of the greatest is plain."""
    deepest = max(depths)
    by_name = {f"residual, {depth}": (depth, []) for depth in sorted(depths)}
    for name, combination in COMBINATIONS.items():
        by_name[f"{name}, {deepest}"] = (
            deepest,
            [f"model.encoder.combination={combination}"],
        )
    recomputed = ["training.checkpoint_activations=layers"]
    return by_name | {f"residual, {deepest}, recomputed": (deepest, recomputed)}


def turn(step: Step, work: Work, device: torch.device) -> Callable[[], None]:
    def run() -> None:
        for batch in work.batches(device):
            step(batch)

    return run


def measure(
    options: argparse.Namespace, norm: str, types: int, work: Work, device: torch.device
) -> tuple[Turns, dict[str, int]]:
    """Turns, and bytes at the peak beyond those held between updates, by variant."""
    runs, memory = {}, {}
    for name, (depth, overrides) in variants(options.depths).items():
        recipe = adapt(
            options.data / RECIPE_FILE,
            replace(options.shape, encoder=depth),
            tokens=options.tokens,
            norm=norm,
            overrides=overrides,
        )
        model = build_ours(recipe, types, device)
        runs[name] = turn(our_step(recipe, model, DTYPES[options.precision]), work, device)
        runs[name]()  # warm up, and create the moments
        memory[name] = peak_increase(runs[name], device)
    return take_turns(runs, repeats=options.repeats, device=device), memory


def report(turns: Turns, memory: dict[str, int], title: str, tokens: int) -> Table:
    plain = [name for name in turns.spent if re.fullmatch(r"residual, \d+", name)]
    shallow, deep = plain[0], plain[-1]
    table = empty_table(
        title,
        "times: seconds of a turn over those of the same turn, median (least to most);\n"
        "MB: at the peak, beyond what is held between updates",
        (
            "encoder",
            "tokens/s",
            "s / turn",
            f"times {shallow}",
            f"times {deep}",
            "MB",
        ),
    )
    for name in turns.spent:
        seconds = turns.median(name)
        table.add_row(
            name,
            f"{tokens / seconds:,.0f}",
            f"{seconds:.3f}",
            "" if name == shallow else spread(turns.ratios([name], shallow)),
            "" if name in (shallow, deep) else spread(turns.ratios([name], deep)),
            megabytes(memory[name]),
        )
    return table


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    device, console = opening(options)
    data = DataDirectory.open(options.data)
    types = len(data.pipeline.target.vocabulary)
    work = Work.choose(data.corpus("train"), tokens=options.tokens, updates=options.updates)
    console.print(
        f"{options.shape} but for the encoder's depth, {types:,} types; {len(work.plan)} updates a "
        f"turn: {work.target_tokens:,} target tokens; {options.precision}"
    )
    for norm in options.norms:
        turns, memory = measure(options, norm, types, work, device)
        title = f"{norm}, {options.precision}; {options.repeats} turns"
        console.print(report(turns, memory, title, work.target_tokens))


if __name__ == "__main__":
    main()
