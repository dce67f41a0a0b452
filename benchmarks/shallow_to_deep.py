"""Growth in miniature: a deep encoder grown in stages against one trained deep from the start.

    python benchmarks/shallow_to_deep.py --data DIR --out DIR [--stages 6 12 18 24] [--decoder 6]
        [--stage-updates N] [--methods NAME ...] [--sparse-blocks] [--relative] [--width 64]
        [--updates N] [--lr LR] [--warmup N] [--seeds 1] [--jobs 2] [KEY=VALUE ...]
    python benchmarks/shallow_to_deep.py --out DIR --table

Data and way of working are those of benchmarks/convergence.py. All are trained for the same number
of updates; a stage but the last has --stage-updates of them, by default its equal share. The rows
are the ablation of Li et al. 2020, Table 2: new layers copied from the topmost group or drawn
anew, the learning rate restarted at each growth or not. "saved" is time against the deep model from
scratch, ratios formed within a seed: by the clock on the wall, validations not counted, and by CPU
time, all counted. Where others use the machine too, read the second; a training that was
interrupted has none.
"""

import argparse
import statistics
from collections.abc import Sequence

from miniature import add_arguments, cell, parse, recipe, run, settings, unigram_of
from trials import Record, Trial

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory

SCRATCH = "scratch"
# Strategy, and whether the learning rate restarts.
GROWTH = {
    "copy-restart": ("copy_top_group", True),
    "copy": ("copy_top_group", False),
    "random-restart": ("random", True),
    "random": ("random", False),
}
METHODS = [SCRATCH, *GROWTH]
CLOCKS = {"update_seconds": "seconds", "cpu_seconds": "CPU seconds"}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Shallow-to-deep training in miniature")
    add_arguments(parser)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--stages", type=int, nargs="+", default=[6, 12, 18, 24])
    parser.add_argument("--stage-updates", type=int, help="default: updates / stages")
    parser.add_argument("--decoder", type=int, default=6, help="decoder layers")
    parser.add_argument(
        "--sparse-blocks",
        action="store_true",
        help="encoder layers in blocks of the first stage's depth (Li et al. 2020, Figure 4)",
    )
    parser.add_argument("--relative", action="store_true", help="relative positions, clipped at 8")
    options = parse(parser, given)
    options.stage_updates = options.stage_updates or options.updates // len(options.stages)
    if (len(options.stages) - 1) * options.stage_updates >= options.updates:
        parser.error("no update is left for the last stage: give fewer --stage-updates")
    return options


def method_recipe(options: argparse.Namespace, method: str, *, seed: int) -> Recipe:
    own = [
        f"model.encoder.depth={options.stages[-1]}",
        f"model.decoder.depth={options.decoder}",
        "model.encoder.residual=pre_norm",
        "model.decoder.residual=pre_norm",
    ]
    if options.sparse_blocks:
        blocks = f"{{type: sparse_blocks, blocks: {options.stages[0]}}}"
        own.append(f"model.encoder.combination={blocks}")
    if options.relative:
        own.append("model.positions={type: relative, clip: 8}")
    if method != SCRATCH:
        strategy, restart = GROWTH[method]
        *growing, last = options.stages
        stages = [f"{{encoder: {depth}, updates: {options.stage_updates}}}" for depth in growing]
        own += [
            f"training.stages=[{', '.join([*stages, f'{{encoder: {last}}}'])}]",
            f"training.growth.strategy={strategy}",
            f"training.growth.restart_lr={str(restart).lower()}",
        ]
    return recipe(options, own, seed=seed)


def trials(options: argparse.Namespace) -> list[Trial]:
    keys = ("stages", "stage_updates", "decoder", "sparse_blocks", "relative")
    facts = {
        "settings": settings(options) | {key: getattr(options, key) for key in keys},
        "unigram_perplexity": unigram_of(DataDirectory.open(options.data)),
    }
    return [
        Trial(method, method_recipe(options, method, seed=seed), facts, options.data, options.out)
        for seed in range(1, options.seeds + 1)
        for method in options.methods
    ]


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Methods by what they reach and what they cost."""
    table = [
        ["method", "perplexity", *(text for name in CLOCKS.values() for text in (name, "saved"))]
    ]
    present = {record["method"] for record in records}
    for method in (name for name in METHODS if name in present):
        found = [one for one in records if one["method"] == method]
        costs = [text for clock in CLOCKS for text in cost(records, method, clock)]
        table.append([method, cell(found), *costs])
    return table


def cost(records: Sequence[Record], method: str, clock: str) -> tuple[str, str]:
    """Mean time of a method, and what it saves; empty where nothing was measured."""
    timed = [one for one in records if not one["diverged"] and one[clock] is not None]
    scratch = {one["seed"]: one[clock] for one in timed if one["method"] == SCRATCH}
    found = [one for one in timed if one["method"] == method]
    ratios = [
        one[clock] / scratch[one["seed"]]
        for one in found
        if method != SCRATCH and one["seed"] in scratch
    ]
    return (
        f"{statistics.mean(one[clock] for one in found):,.0f}" if found else "",
        f"{1 - statistics.mean(ratios):.1%}" if ratios else "",
    )


if __name__ == "__main__":
    run(arguments(), trials, rows)
