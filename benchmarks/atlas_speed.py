"""The time of an update of every method of the atlas, relative to the plain pre-norm model."""

import csv
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
from atlas_methods import TOKENS, Depth, recipe
from contenders import build_ours, our_step
from machine import machine
from turns import take_turns
from work import Work

from nmtdeep.data.corpus import DataDirectory
from nmtdeep.memory import keep_memory

PLAIN = "pre-norm"
UPDATES = 4  # in a turn
KEYS = ("method", "depth", "optimizer")
Cells = dict[str, str]


def measure(
    data: Path, path: Path, methods: Iterable[str], depth: Depth, optimizer: str, *, repeats: int
) -> None:
    """Add or replace a row for each method; they take turns with the plain model."""
    keep_memory()
    torch.set_num_threads(1)
    found = {tuple(row[key] for key in KEYS): row for row in rows(path)}
    names, corpus = dict.fromkeys([PLAIN, *methods]), DataDirectory.open(data)
    for row in compare(corpus, names, depth, optimizer, repeats=repeats):
        found[tuple(row[key] for key in KEYS)] = row
    write(path, list(found.values()))


def compare(
    data: DataDirectory, methods: Iterable[str], depth: Depth, optimizer: str, *, repeats: int
) -> list[Cells]:
    """Seconds of updates over those of the plain model, by method.

    The least processor time of all turns counts: what else the machine does only adds to it.
    `least` and `most` are of the ratios within a turn.
    """
    work = Work.choose(data.corpus("train"), tokens=TOKENS, updates=UPDATES)
    types, runs = len(data.pipeline.target.vocabulary), {}
    for method in methods:
        own = recipe(data.path, method, depth, optimizer)
        step = our_step(own, build_ours(own, types), torch.bfloat16)
        runs[method] = partial(work.train, step, torch.device("cpu"))
        runs[method]()  # warm up, and create the moments
    turns, signature, found = take_turns(runs, repeats=repeats), machine(), []
    fastest = {method: min(turns.seconds(method, "cpu")) for method in runs}
    for method in runs:
        ratios = turns.ratios([method], PLAIN, "cpu")
        values = fastest[method] / fastest[PLAIN], min(ratios), max(ratios)
        shown = dict(zip(("slower", "least", "most"), (f"{x:.3f}" for x in values), strict=True))
        speed = f"{work.target_tokens / fastest[method]:.0f}"
        key = dict(zip(KEYS, (method, str(depth), optimizer), strict=True))
        found.append({**key, **shown, "tokens_per_second": speed})
        print(" ".join(found[-1].values()), flush=True)
        found[-1] |= {"turns": str(repeats), "machine": signature}
    return found


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
