"""Training speed of one process and of several that share its threads, on the same updates.

    python benchmarks/processes.py --data DIR --recipe demo [--processes 1 2] [--updates N]
        [--repeats N] [KEY=VALUE ...]

DIR is a data directory of nmtdeep preprocess with that recipe. Each turn trains from the start, by
the procedure behind nmtdeep train, and counts the target tokens per second of its second half; the
contenders take turns and ratios are formed within a turn.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import torch

import nmtdeep
from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.training.loop import train
from nmtdeep.training.run_directory import RECORDS


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training speed by number of processes")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument("--recipe", required=True, help="name or file")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--updates", type=int, default=50, help="counted in a turn")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each contender")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="recipe values to change")
    return parser.parse_args()


def short(updates: int) -> list[str]:
    """Overrides that make a training of two times `updates`, the second half logged by itself."""
    return [
        f"training.max_updates={2 * updates}",
        f"training.log_every={updates}",
        f"training.validation.every={2 * updates}",
        "training.validation.bleu=false",
        "training.validation.best_by=loss",
        f"training.checkpoints.every={2 * updates}",
        "training.checkpoints.average_last=0",
    ]


def second_half(
    recipe: Recipe, data: Path, *, processes: int = 1, device: str = "auto"
) -> dict[str, float]:
    """What a `short` training logs of its second half."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        train(recipe, data=data, out=out, processes=processes, device=device, quiet=True)
        records = [json.loads(line) for line in (out / RECORDS).read_text().splitlines()]
    return [one for one in records if one["kind"] == "train"][-1]


def main() -> None:
    options = arguments()
    changes = [*options.overrides, *short(options.updates)]
    recipe = load_recipe(options.recipe, changes)
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; nmtdeep {nmtdeep.__version__}, torch "
        f"{torch.__version__}, Python {platform.python_version()}; {torch.get_num_threads()} "
        f"threads, load average {os.getloadavg()[0]:.1f}; recipe {options.recipe} "
        f"{' '.join(options.overrides)}; {options.updates} updates, {options.repeats} turns"
    )
    turns = [
        {
            count: second_half(recipe, options.data, processes=count)["tokens_per_second"]
            for count in options.processes
        }
        for _ in range(options.repeats)
    ]
    first = options.processes[0]
    for count in options.processes:
        ratios = [turn[count] / turn[first] for turn in turns]
        print(
            f"{count} processes: {statistics.median(turn[count] for turn in turns):,.0f} target "
            f"tokens/s, {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) "
            f"times {first}"
        )


if __name__ == "__main__":
    main()
