"""The atlas: methods of training deep Transformers, compared on Multi30k at several depths.

    python benchmarks/atlas.py run --data DIR --out DIR [--results CSV] [--plan NAME ...]
        [--only METHOD ...] [--minutes N] [--speed CSV]
    python benchmarks/atlas.py speed --data DIR [--speed CSV] [--only METHOD ...]
    python benchmarks/atlas.py report [--results CSV] [--speed CSV] [--picture SVG]

--data is what this makes:

    nmtdeep preprocess multi30k-en-de text.bpe.merges=4000 --train multi30k/train
        --valid multi30k/val --test multi30k/test_2016_flickr --out DIR

`run` walks the plans, trains what the CSV file lacks, one after the other by the procedure behind
`nmtdeep train`, and adds a row for each at once. It starts no training after --minutes; a signal
makes the training save and leave, and the same command goes on where it was. For several cores,
start it once for each, with the same files: each process takes what no other one is training.

The model is thin, because two CPU cores are all there is: width 64, 4 heads, inner width 256, 4,000
joint merges (a small output layer), dropout 0.1, label smoothing 0.1, updates of 1,024 padded
tokens, bf16 products where the processor has them, which are 1.4 times as fast as fp32 at this
width. The schedule, inverse square root after 100 updates of warm-up, has no end, so a training is
a prefix of any longer one; in `end` alone the rate falls to zero.

Plans: `tune-muon` and `tune` (Adam) search rates by factors of two, at 12+6 layers with seed 1,
until the best has worse neighbors. `main`: three depths, three seeds, at equal tokens. `long`: the
same at one depth, for longer. `end`: the best methods of that depth to the end of training.
`adam`: the beginning with the papers' optimizer. `convergence`, `paper-batch` and `growth`:
questions of the papers.

Equal seconds: `speed` measures how many times as long an update takes as that of the plain pre-norm
model. A method that is r times slower is read after 1/r of the updates as well, from its curve and
from a checkpoint that is saved there. A faster one is not trained for longer.
"""

import argparse
import fcntl
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import atlas_report
import atlas_speed
import numpy as np
import torch
from atlas_methods import CHOICES, MAIN, recipe
from atlas_plan import DEPTHS, PLANS, trials
from atlas_table import Row, Trial, append, perplexity_at, read

from nmtdeep.checkpoint import RECORDS
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import native_bf16
from nmtdeep.errors import DivergenceError
from nmtdeep.memory import keep_memory
from nmtdeep.scoring import score_texts
from nmtdeep.training.loop import train
from nmtdeep.training.validation import translated

DOCS = Path(__file__).parents[1] / "docs" / "atlas"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Methods by depth by seed")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train what is missing")
    speed = commands.add_parser("speed", help="measure the time of updates")
    report = commands.add_parser("report", help="print tables and draw a picture")
    for command in (run, report):
        command.add_argument("--results", type=Path, default=DOCS / "atlas.csv")
    for command in (run, speed, report):
        command.add_argument("--speed", type=Path, default=DOCS / "speed.csv")
    for command in (run, speed):
        command.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
        command.add_argument("--only", nargs="+", choices=CHOICES, metavar="METHOD")
    run.add_argument("--out", type=Path, required=True, help="run directories, deleted when done")
    run.add_argument("--plan", nargs="+", choices=PLANS, default=list(PLANS))
    run.add_argument("--minutes", type=float, default=math.inf)
    speed.add_argument("--repeats", type=int, default=5)
    report.add_argument("--picture", type=Path, default=DOCS / "atlas.svg")
    return parser.parse_args(words)


def run(options: argparse.Namespace) -> None:
    """Train what is missing, until the time is over."""
    keep_memory()
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        with next_trial(options) as trial:
            if not trial:
                break
            done = {row.trial for row in read(options.results)}
            parts = [
                trial._replace(plan=plan) for plan in (PLANS[trial.plan].begins_as, trial.plan)
            ]
            out = options.out / str(next(part for part in parts if part.plan))
            for part in parts:
                if part.plan and part not in done:
                    measure(part, out, options)
            shutil.rmtree(out)


@contextmanager
def next_trial(options: argparse.Namespace) -> Iterator[Trial | None]:
    """The first that is missing and that no other process is training; None if there is none.

    It is locked as long as the context lasts, with all that belongs to its method, depth and seed:
    plans share run directories, and a rate follows from those tried before.
    """
    missing = (one for plan in options.plan for one in trials(plan, read(options.results)))
    for trial in missing:
        if trial.method in (options.only or CHOICES):
            lock = options.out / "locks" / f"{trial.method}-{trial.depth}-{trial.seed}"
            lock.parent.mkdir(parents=True, exist_ok=True)
            with lock.open("w") as file:
                if is_free(file) and trial in trials(trial.plan, read(options.results)):
                    yield trial
                    return
    yield None


def is_free(file: IO[str]) -> bool:
    """Lock a file until it is closed, unless another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def slower(trial: Trial, options: argparse.Namespace) -> float:
    """How many times as long an update takes as the plain model's; measured if it is not known.

    nan where it is not asked for.
    """
    plan = PLANS[trial.plan]
    if not plan.timed:
        return math.nan
    sought = (trial.method, str(trial.depth), plan.optimizer)
    if sought not in atlas_speed.read(options.speed):
        known = atlas_speed.read(options.speed)
        methods = (name for name in plan.methods if (name, *sought[1:]) not in known)
        atlas_speed.measure(
            options.data, options.speed, methods, trial.depth, plan.optimizer, repeats=5
        )
    return atlas_speed.read(options.speed)[sought]


def measure(trial: Trial, out: Path, options: argparse.Namespace) -> None:
    """Train, or go on; then add a row of the figures at the end and after equal seconds.

    Args:
        out: the run directory, which a plan shares with the one that begins it.
    """
    began, data = time.monotonic(), DataDirectory.open(options.data)
    times, plan = slower(trial, options), PLANS[trial.plan]
    equal = round(plan.updates / times) if times > 1 else plan.updates
    last, curve = trained(trial, data, out, saves=equal)
    ended = last["update"] == plan.updates
    row = Row(
        **trial._asdict(),
        updates=last["update"],
        target_tokens=last["target_tokens"],
        seconds=last["seconds"],
        unigram=unigram_perplexity(data),
        perplexity=curve[-1][1] if ended else math.inf,
        slower=times,
        equal_updates=equal,
        equal_perplexity=perplexity_at(curve, equal) if ended else math.inf,
        curve=curve,
        precision="bf16" if native_bf16(torch.device("cpu")) else "fp32",
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit(),
        torch=torch.__version__,
    )
    if plan.translates and not row.fails:
        ends = {plan.updates, equal}
        bleu = {update: bleu_of(out / f"checkpoint_{update}", data) for update in ends}
        at_equal = {f"equal_{name}": value for name, value in bleu[equal].items()}
        row = replace(row, **bleu[plan.updates], **at_equal)
    append(options.results, row)
    shown = "fails" if row.fails else f"{row.perplexity:.2f}, BLEU {row.bleu_test:.2f}"
    print(f"{trial}: {shown}, {time.monotonic() - began:.0f} s", flush=True)


def trained(
    trial: Trial, data: DataDirectory, out: Path, *, saves: int
) -> tuple[dict[str, Any], list[tuple[int, float]]]:
    """Train, or go on; the last record, and update and perplexity of each validation."""
    chosen = recipe_of(trial, data.path, saves=saves)
    try:
        if signal := train(chosen, data=data.path, out=out, device="cpu", threads=1, quiet=True):
            sys.exit(128 + signal)
    except DivergenceError as error:
        print(error)
    records = [json.loads(line) for line in (out / RECORDS).read_text().splitlines()]
    last = [one for one in records if one["kind"] == "train"][-1]
    return last, [(one["update"], one["valid_ppl"]) for one in records if "valid_ppl" in one]


def recipe_of(trial: Trial, data: Path, *, saves: int) -> Recipe:
    """The recipe of a training. A plan's changes come first: they may replace the schedule."""
    plan = PLANS[trial.plan]
    return recipe(
        data,
        trial.method,
        trial.depth,
        plan.optimizer,
        *plan.changes,
        f"training.seed={trial.seed}",
        f"training.schedule.lr={trial.lr}",
        f"training.max_updates={plan.updates}",
        *(f"training.{key}={plan.every}" for key in ("validation.every", "log_every")),
        f"training.checkpoints.every={saves}",
    )


def bleu_of(checkpoint: Path, data: DataDirectory) -> dict[str, float]:
    """BLEU of the validation and the first test set, as the recipe translates: beam 5."""
    translator, found = Translator.load([checkpoint], DecodingOptions(device="cpu")), {}
    for name, split in zip(("bleu_valid", "bleu_test"), data.held_out, strict=False):
        lines = translated(translator, data, split)
        found[name] = score_texts(lines, [data.references(split)], ["bleu"])[0].value
    return found


def unigram_perplexity(data: DataDirectory) -> float:
    """exp(-mean log p(w)) over the targets of valid, p(w) = (count(w) + 1) / (N + V) in train."""
    train_ids, valid_ids = (
        np.asarray(data.corpus(split).target.tokens) for split in ("train", "valid")
    )
    types = len(data.pipeline.target.vocabulary)
    counts = np.bincount(train_ids, minlength=types) + 1
    return math.exp(-float(np.log(counts[valid_ids] / counts.sum()).mean()))


def commit() -> str:
    asked = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(
        asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    match options.command:
        case "run":
            run(options)
        case "speed":
            for depth in DEPTHS:
                methods = options.only or MAIN
                atlas_speed.measure(
                    options.data, options.speed, methods, depth, "muon", repeats=options.repeats
                )
        case _:
            atlas_report.report(options)


if __name__ == "__main__":
    main()
