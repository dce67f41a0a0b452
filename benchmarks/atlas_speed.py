"""The time of an update of every method of the atlas, relative to the plain pre-norm model."""

import csv
import json
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from atlas_methods import Depth, recipe
from contenders import build_ours, our_step
from machine import machine
from turns import take_turns
from work import Work

from nmtdeep.checkpoint import RECORDS
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.devices import native_bf16
from nmtdeep.memory import keep_memory
from nmtdeep.training.loop import train
from nmtdeep.training.setup import TrainingJob

PLAIN = "pre-norm"
UPDATES = 4  # in a turn
TURNS = 5
# A training whose last record is of the updates after the graphs are captured.
TRIAL = (
    "training.max_updates=300",
    "training.log_every=100",
    "training.validation={every: 300, bleu: false}",
    "training.checkpoints.every=300",
)
KEYS = ("method", "depth", "optimizer")
Cells = dict[str, str]


def measure(
    options: Namespace,
    methods: Iterable[str],
    depth: Depth,
    optimizer: str,
    changes: Sequence[str],
) -> None:
    """Add or replace a row for each method, and for the plain one."""
    keep_memory()
    torch.set_num_threads(1)
    found = {tuple(row[key] for key in KEYS): row for row in rows(options.speed)}
    device = torch.device(options.device)
    recipes = {
        name: recipe(options.data, name, depth, optimizer, *changes, *TRIAL)
        for name in dict.fromkeys([PLAIN, *methods])
    }
    compare = compare_trainings if device.type == "cuda" else compare_turns
    signature = machine(device)
    for method, cells in compare(options.data, recipes, device):
        key = (method, str(depth), optimizer)
        found[key] = dict(zip(KEYS, key, strict=True)) | cells | {"machine": signature}
        print(*found[key].values(), flush=True)
    write(options.speed, list(found.values()))


def compare_turns(
    data: Path, recipes: Mapping[str, Recipe], device: torch.device
) -> Iterator[tuple[str, Cells]]:
    """Seconds of updates over those of the plain model, by method, on a CPU.

    The least processor time of all turns counts: what else the machine does only adds to it.
    `least` and `most` are of the ratios within a turn.
    """
    directory, runs = DataDirectory.open(data), {}
    tokens = recipes[PLAIN].training.batches.tokens_per_update
    work = Work.choose(directory.corpus("train"), tokens=tokens, updates=UPDATES)
    types = len(directory.pipeline.target.vocabulary)
    precision = torch.bfloat16 if native_bf16(device) else torch.float32
    for method, own in recipes.items():
        step = our_step(own, build_ours(own, types), precision)
        runs[method] = partial(work.train, step, device)
        runs[method]()  # warm up, and create the moments
    turns = take_turns(runs, repeats=TURNS)
    fastest = {method: min(turns.seconds(method, "cpu")) for method in runs}
    for method in runs:
        ratios = turns.ratios([method], PLAIN, "cpu")
        values = fastest[method] / fastest[PLAIN], min(ratios), max(ratios)
        yield method, cells(values, work.target_tokens / fastest[method], TURNS)


def compare_trainings(
    data: Path, recipes: Mapping[str, Recipe], device: torch.device
) -> Iterator[tuple[str, Cells]]:
    """The same of trainings one after the other, on a GPU, which replays most of their updates."""
    speeds: dict[str, float] = {}
    for method, own in recipes.items():
        with TemporaryDirectory() as out:
            train(TrainingJob(own, data, Path(out), str(device), threads=1), quiet=True)
            lines = (Path(out) / RECORDS).read_text().splitlines()
        speeds[method] = json.loads(lines[-1])["tokens_per_second"]
        ratio = speeds[PLAIN] / speeds[method]
        yield method, cells((ratio, ratio, ratio), speeds[method], 1)


def cells(ratios: tuple[float, float, float], tokens_per_second: float, turns: int) -> Cells:
    """The ratio and its extremes, target tokens/s, turns."""
    shown = dict(zip(("slower", "least", "most"), (f"{x:.3f}" for x in ratios), strict=True))
    return {**shown, "tokens_per_second": f"{tokens_per_second:.0f}", "turns": str(turns)}


def rows(path: Path) -> list[Cells]:
    """What has been measured; nothing without a file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, found: list[Cells]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(found)


def read(path: Path) -> dict[tuple[str, ...], float]:
    """How many times as long an update takes as the plain model's, by `KEYS`."""
    return {tuple(row[key] for key in KEYS): float(row["slower"]) for row in rows(path)}
