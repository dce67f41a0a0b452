"""The atlas: methods of training deep Transformers, compared on Multi30k at several depths.

    python benchmarks/atlas.py run --data DIR --out DIR [--results CSV] [--plan NAME ...]
        [--only METHOD ...] [--minutes N] [--jobs N] [--device cuda] [--speed CSV]
    python benchmarks/atlas.py speed --data DIR [--device cuda] [--speed CSV] [--only METHOD ...]
    python benchmarks/atlas.py report [--results CSV] [--speed CSV] [--picture SVG]

--data is what this makes:

    nmtdeep preprocess multi30k-en-de text.bpe.merges=4000 --train multi30k/train
        --valid multi30k/val --test multi30k/test_2016_flickr --out DIR

`run` walks the plans, trains what the CSV file lacks, --jobs at a time, by the procedure behind
`nmtdeep train`, and adds a row for each at once. It starts no training after --minutes; a signal
makes the trainings save and leave, and the same command goes on where it was. Each job is a process
of one thread that takes what no other one is training; jobs of several commands may share files.

The plans, their recipe and their purpose are in docs/atlas.md ("Protocol") and atlas_plan.py.

Equal seconds: `speed` measures how many times as long an update takes as that of the plain pre-norm
model. A method that is r times slower is read after 1/r of the updates as well, from its curve and
from a checkpoint that is saved there. A faster one is not trained for longer.
"""

import argparse
import fcntl
import json
import math
import shutil
import signal
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
from nmtdeep.training.setup import TrainingJob
from nmtdeep.training.validation import translated

DOCS = Path(__file__).parents[1] / "docs" / "atlas"
PAUSE = 2.0  # seconds until a job without work looks again


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
        command.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
        command.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
        command.add_argument("--only", nargs="+", choices=CHOICES, metavar="METHOD")
    run.add_argument("--out", type=Path, required=True, help="run directories, deleted when done")
    run.add_argument("--plan", nargs="+", choices=PLANS, default=list(PLANS))
    run.add_argument("--minutes", type=float, default=math.inf)
    run.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    report.add_argument("--picture", type=Path, default=DOCS / "atlas.svg")
    return parser.parse_args(words)


def run_jobs(words: Sequence[str], jobs: int) -> None:
    """The same command in processes of one job each; a signal is passed on to all."""
    command = [sys.executable, __file__, *words, "--jobs", "1"]
    processes = [subprocess.Popen(command) for _ in range(jobs)]

    def pass_on(number: int, _: object) -> None:
        for process in processes:
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    if failed := [code for process in processes if (code := process.wait())]:
        sys.exit(abs(failed[0]))


def run(options: argparse.Namespace) -> None:
    """Train what is missing, until the time is over."""
    keep_memory()
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end and (missing := missing_trials(options)):
        with claimed(missing, options) as trial:
            if not trial:  # what others train may leave more to do: the next rate of a search
                time.sleep(PAUSE)
                continue
            done = {row.trial for row in read(options.results)}
            parts = [
                trial._replace(plan=plan) for plan in (PLANS[trial.plan].begins_as, trial.plan)
            ]
            out = options.out / str(next(part for part in parts if part.plan))
            for part in parts:
                if part.plan and part not in done:
                    measure(part, out, options)
            shutil.rmtree(out)


def missing_trials(options: argparse.Namespace) -> list[Trial]:
    """What the plans lack so far, in order."""
    rows = read(options.results)
    missing = (one for plan in options.plan for one in trials(plan, rows))
    return [one for one in missing if one.method in (options.only or CHOICES)]


@contextmanager
def claimed(missing: Sequence[Trial], options: argparse.Namespace) -> Iterator[Trial | None]:
    """The first that no other process is training; None if there is none.

    It is locked as long as the context lasts, with all that belongs to its method, depth and seed:
    plans share run directories, and a rate follows from those tried before.
    """
    for trial in missing:
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
    if sought not in (known := atlas_speed.read(options.speed)):
        methods = [name for name in plan.methods if (name, *sought[1:]) not in known]
        atlas_speed.measure(options, methods, trial.depth, plan.optimizer, plan.changes)
    return atlas_speed.read(options.speed)[sought]


def measure(trial: Trial, out: Path, options: argparse.Namespace) -> None:
    """Train, or go on; then add a row of the figures at the end and after equal seconds.

    Args:
        out: the run directory, which a plan shares with the one that begins it.
    """
    began, data = time.monotonic(), DataDirectory.open(options.data)
    times, plan = slower(trial, options), PLANS[trial.plan]
    updates = plan.length(trial.method, trial.depth)
    equal = round(updates / times) if times > 1 else updates
    last, validations = trained(trial, data, out, options.device, saves=equal)
    curve = [(one["update"], one["valid_ppl"]) for one in validations]
    device = torch.device(options.device)
    ended = last["update"] == updates
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
        bleu_curve=[
            (one["update"], one["valid_bleu"])
            for one in validations
            if one["valid_bleu"] is not None
        ],
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        precision="bf16" if native_bf16(device) else "fp32",
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=subprocess.getoutput(f"git -C {DOCS} describe --always --dirty"),
        torch=torch.__version__,
    )
    if plan.translates and not row.fails:
        ends = {updates, equal}
        found = {end: bleu_of(out / f"checkpoint_{end}", data, options.device) for end in ends}
        at_equal = {f"equal_{name}": value for name, value in found[equal].items()}
        row = replace(row, **found[updates], **at_equal)
    append(options.results, row)
    shown = "fails" if row.fails else f"{row.perplexity:.2f}, BLEU {row.bleu_test:.2f}"
    print(f"{trial}: {shown}, {time.monotonic() - began:.0f} s", flush=True)


def trained(
    trial: Trial, data: DataDirectory, out: Path, device: str, *, saves: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Train, or go on; the last record of an update, and those of the validations."""
    chosen = recipe_of(trial, data.path, saves=saves)
    try:
        job = TrainingJob(chosen, data.path, out, device, threads=1)
        if number := train(job, quiet=True):
            sys.exit(128 + number)
    except DivergenceError as error:
        print(error)
    records = [json.loads(line) for line in (out / RECORDS).read_text().splitlines()]
    last = [one for one in records if one["kind"] == "train"][-1]
    return last, [one for one in records if "valid_ppl" in one]


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
        f"training.max_updates={plan.length(trial.method, trial.depth)}",
        *(f"training.{key}={plan.every}" for key in ("validation.every", "log_every")),
        f"training.checkpoints.every={saves}",
    )


def bleu_of(checkpoint: Path, data: DataDirectory, device: str) -> dict[str, float]:
    """BLEU of the validation and the first test set, as the recipe translates: beam 5."""
    translator, found = Translator.load([checkpoint], DecodingOptions(device=device)), {}
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


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    match options.command:
        case "run" if options.jobs > 1:
            run_jobs(sys.argv[1:] if words is None else words, options.jobs)
        case "run":
            run(options)
        case "speed":
            for depth in DEPTHS:
                atlas_speed.measure(options, options.only or MAIN, depth, "muon", changes=())
        case _:
            atlas_report.report(options)


if __name__ == "__main__":
    main()
