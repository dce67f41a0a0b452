"""What the trainings in miniature share: options, the base recipe, the unigram level, tables."""

import argparse
import math
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from trials import Record, Trial, results, train_all

from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory

RECIPE = "multi30k-en-de"
VALIDATIONS = 10  # in a training
# A model that learns nothing from what it reads ends at the unigram perplexity, a little above it
# under label smoothing; a tenth less is beyond what chance and rounding give such a model.
FAILS_FROM = 0.9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, help="preprocessed data directory")
    parser.add_argument("--out", type=Path, required=True, help="run directories and results.jsonl")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--tokens", type=int, default=2048, help="padded tokens of an update")
    parser.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=100, help="updates until the peak")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each: seeds 1 to N")
    parser.add_argument("--jobs", type=int, default=2, help="processes, each on a core of its own")
    parser.add_argument("--precision", choices=("fp32", "bf16", "auto"), default="fp32")
    parser.add_argument("--table", action="store_true", help="show the results, train nothing")
    parser.epilog = "KEY=VALUE anywhere changes a value of the recipe, text.bpe.merges=8000 for one"


def parse(parser: argparse.ArgumentParser, given: Sequence[str] | None) -> argparse.Namespace:
    """Options, with what looks like KEY=VALUE taken out first: lists of names would swallow it."""
    given = sys.argv[1:] if given is None else given
    overrides = [one for one in given if re.match(r"[a-z_]+\.[\w.]+=", one)]
    options = parser.parse_args([one for one in given if one not in overrides])
    options.overrides = overrides
    if not (options.data or options.table):
        parser.error("--data is needed to train; --table shows what there is")
    return options


def base(options: argparse.Namespace, *, seed: int) -> list[str]:
    """The overrides that every training has in common.

    Every update is logged: the first one's gradient norm is a result, and the time of updates is
    their sum. 16 features a head and an inner width of 4 d, as in the papers' base models or near.
    """
    heads, updates = max(1, options.width // 16), options.updates
    stacks = [
        f"model.{side}.{key}={value}"
        for side in ("encoder", "decoder")
        for key, value in (("heads", heads), ("feed_forward", 4 * options.width))
    ]
    batches = [
        f"training.batches.{key}={options.tokens}"
        for key in ("tokens_per_update", "group_tokens", "max_tokens")
    ]
    return [
        f"model.width={options.width}",
        *stacks,
        *batches,
        "model.dropout={embedding: 0.1, residual: 0.1, attention: 0, activation: 0}",
        f"training.seed={seed}",
        f"training.max_updates={updates}",
        "training.optimizer={betas: [0.9, 0.98]}",
        f"training.schedule.lr={options.lr}",
        f"training.schedule.warmup_updates={options.warmup}",
        "training.label_smoothing=0.1",
        f"training.precision={options.precision}",
        "training.validation={bleu: false, best_by: loss, patience: 0}",
        f"training.validation.every={max(1, updates // VALIDATIONS)}",
        "training.checkpoints={keep_last: 1, keep_best: 0, average_last: 0}",
        f"training.checkpoints.every={max(1, updates // VALIDATIONS)}",
        "training.log_every=1",
    ]


def recipe(options: argparse.Namespace, own: Sequence[str], *, seed: int) -> Recipe:
    """The base, what is the method's own, and what the user wants to have changed."""
    return load_recipe(RECIPE, [*base(options, seed=seed), *own, *options.overrides])


def settings(options: argparse.Namespace) -> Record:
    """What must be equal for two results to stand in one table."""
    keys = ("updates", "tokens", "lr", "warmup", "width", "precision", "overrides")
    return {key: getattr(options, key) for key in keys}


def unigram_perplexity(
    train: NDArray[np.integer], valid: NDArray[np.integer], *, types: int
) -> float:
    """exp(-mean log p(w)) over the ids of `valid`, p(w) = (count(w) + 1) / (N + V) in `train`.

    Both are target ids as the loss counts them, the end of each sentence included.
    """
    counts = np.bincount(train, minlength=types) + 1
    return math.exp(-float(np.log(counts[valid] / counts.sum()).mean()))


def unigram_of(data: DataDirectory) -> float:
    """The unigram level of a data directory."""
    sides = [np.asarray(data.corpus(split).target.tokens) for split in ("train", "valid")]
    return unigram_perplexity(*sides, types=len(data.pipeline.target.vocabulary))


def fails(record: Record) -> bool:
    """Whether a training diverged or stayed at the unigram level; no number is a failure too."""
    found = record["perplexity"]
    return found is None or not found < FAILS_FROM * record["unigram_perplexity"]


def cell(records: Sequence[Record]) -> str:
    """The mean perplexity over seeds; `fails`, or how many of them do."""
    trained = [record["perplexity"] for record in records if not fails(record)]
    if not records or not trained:
        return "fails" if records else ""
    mean = f"{statistics.mean(trained):.2f}"
    lost = len(records) - len(trained)
    return f"{mean} ({lost} of {len(records)} fail)" if lost else mean


def groups(out: Path) -> list[list[Record]]:
    """The results, those of equal settings together."""
    found: dict[str, list[Record]] = {}
    for record in results(out):
        found.setdefault(str(record["settings"]), []).append(record)
    return list(found.values())


def run(
    options: argparse.Namespace,
    trials: Callable[[argparse.Namespace], list[Trial]],
    rows: Callable[[Sequence[Record]], list[list[str]]],
) -> None:
    """Train what is not trained yet, unless only the table is asked for, and show all results."""
    failed: list[str] = []
    if not options.table:
        options.out.mkdir(parents=True, exist_ok=True)
        failed = train_all(trials(options), jobs=options.jobs)
    show(options.out, rows)
    if failed:
        sys.exit(f"without a result: {', '.join(failed)}")


def show(out: Path, rows: Callable[[Sequence[Record]], list[list[str]]]) -> None:
    """A rich and a markdown table of each group of results; the first of `rows` are headings."""
    console = Console(width=112)
    for group in groups(out):
        headings, *body = rows(group)
        table = Table()
        for number, heading in enumerate(headings):
            table.add_column(heading, justify="right" if number else "left")
        for row in body:
            table.add_row(*row)
        console.print("\nValidation perplexity after equal updates\n", table, caption(group))
        print(f"\n{markdown(headings, body)}")


def markdown(headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---", *("---:" for _ in headings[1:])], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def caption(group: Sequence[Record]) -> str:
    """What the figures of a table depend on."""
    said = {key: value for key, value in group[0]["settings"].items() if value}
    lists = {key: " ".join(map(str, value)) for key, value in said.items() if type(value) is list}
    parts = [f"{key} {value}" for key, value in (said | lists).items()]
    made = sorted({f"{one['date']}, commit {one['commit']}" for one in group})
    seeds = len({record["seed"] for record in group})
    return (
        f"{', '.join(parts)}; mean of {seeds} seed{'s' * (seeds > 1)}; unigram perplexity "
        f"{group[0]['unigram_perplexity']:.1f}, fails: not below {FAILS_FROM} of it, or diverged; "
        f"{'; '.join(made)}; torch {group[0]['torch']}, Python {group[0]['python']}"
    )
