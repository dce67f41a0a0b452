"""Start-up, memory and planning of a training against the size of its corpus.

    python benchmarks/corpus.py --data DIR [--pairs 1000000 10000000 100000000] [--recipe demo]

DIR is a data directory of nmtdeep preprocess. Its training pairs are written again and again into a
temporary directory (--scratch says where; 100 million pairs of Multi30k take 8 GB) until there are
as many as asked for, and dropped from the page cache. For each size a fresh process then does what
nmtdeep train does before its first update: import torch, open and check the data, plan the first
window and collate the first batches. It goes on from the middle of the epoch as a resumed training
would, plans some more windows and says what memory it took.

Anonymous memory is what the process cannot do without. Pages of the mapped files count as resident
too, but the system takes them back when it needs them.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WINDOWS, UPDATES = 5, 50  # planned, and read, for the figures of one


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Start-up and memory against corpus size")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument("--pairs", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--recipe", default="", help="default: the one that made DIR")
    parser.add_argument("--scratch", type=Path, help="where the large files go for a while")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def repeat(data: Path, out: Path, pairs: int) -> None:
    """A data directory whose training pairs are those of `data`, over and over."""
    from nmtdeep.data.corpus import DataDirectory
    from nmtdeep.data.index import INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY
    from nmtdeep.files import write_sums

    source = DataDirectory.open(data)
    index: dict[str, Any] = json.loads((data / INDEX_FILE).read_text(encoding="utf-8"))
    corpus = source.corpus("train")
    shutil.copytree(data / TEXT_DIRECTORY, out / TEXT_DIRECTORY)
    shutil.copy(data / RECIPE_FILE, out / RECIPE_FILE)
    for path in data.glob("valid.*"):
        shutil.copy(path, out)
    for side, language in zip((corpus.source, corpus.target), source.languages, strict=True):
        dtype = side.tokens.dtype.name
        write(out / f"train.{language}", dtype, side.tokens, side.lengths, pairs)
    index["splits"] = {name: index["splits"][name] for name in ("train", "valid")}
    index["splits"]["train"]["pairs"] = pairs
    (out / INDEX_FILE).write_text(json.dumps(index), encoding="utf-8")
    write_sums(out)
    for path in out.glob("train.*"):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write(stem: Path, dtype: str, tokens: Any, lengths: Any, pairs: int) -> None:
    """One side, the whole corpus at a time, and at the end as much of it as is left."""
    from nmtdeep.data.corpus import CorpusWriter

    with CorpusWriter(stem, dtype) as writer:
        for _ in range(pairs // len(lengths)):
            writer.write_flat(tokens, lengths)
        rest = lengths[: pairs % len(lengths)]
        writer.write_flat(tokens[: rest.sum()], rest)


def resident() -> dict[str, float]:
    """MiB of this process by kind, and its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    names = ("RssAnon", "RssFile", "VmHWM")
    return {name: int(fields[name].split()[0]) / 1024 for name in names}


def measure(data: Path, name: str) -> dict[str, float]:
    """What a training does before its first update, each step with its seconds."""
    clock, found = [time.perf_counter()], {}

    def lap(step: str) -> None:
        clock.append(time.perf_counter())
        found[step] = clock[-1] - clock[-2]

    import torch

    from nmtdeep.config.load import load_recipe
    from nmtdeep.data.corpus import DataDirectory
    from nmtdeep.data.index import RECIPE_FILE
    from nmtdeep.data.windows import Epoch
    from nmtdeep.training.distributed import ALONE
    from nmtdeep.training.feed import check_batches, check_text, upcoming
    from nmtdeep.training.state import Progress

    lap("import")
    found |= {f"import {kind}": size for kind, size in resident().items()}
    recipe = load_recipe(name or str(data / RECIPE_FILE), [])
    opened = DataDirectory.open(data)
    check_text(recipe, opened)
    check_batches(recipe, opened, 1)
    lap("open")

    def updates(progress: Progress) -> Iterator[Any]:
        return upcoming(recipe, opened, data, progress, torch.device("cpu"), ALONE)

    feed = updates(Progress())
    next(feed)
    lap("first")
    found["cpu"] = time.process_time()
    for _ in range(UPDATES):
        next(feed)
    lap("updates")
    feed.close()
    clock.append(time.perf_counter())
    settings = recipe.training
    epoch = Epoch(opened.corpus("train"), settings.seed, 0)
    found["windows"] = len(epoch)
    # The place of a run that stood in the middle of the epoch.
    feed = updates(Progress(next_in_epoch=10**6, window=len(epoch) // 2, before_window=10**6))
    next(feed)
    lap("resumed")
    feed.close()
    clock.append(time.perf_counter())
    chosen = min(WINDOWS, len(epoch))
    for number in range(chosen):
        epoch.window(
            number,
            group_tokens=settings.batches.group_tokens,
            tokens_per_update=settings.batches.tokens_per_update,
        )
    lap("plan")
    found["plan"] /= chosen
    found |= {f"all {kind}": size for kind, size in resident().items()}
    clock.append(time.perf_counter())
    assert opened.corpus("train").source.lengths.min() > 0
    lap("scan")
    return found


def main() -> None:
    options = arguments()
    if options.measure:
        print(json.dumps(measure(options.data, options.recipe)))
        return
    from machine import machine
    from rich.console import Console
    from rich.table import Table

    table = Table(title="What a training does before its first update, by corpus size; times in s")
    for heading in ("", *(f"{pairs:,} pairs" for pairs in options.pairs)):
        table.add_column(heading, justify="right" if heading else "left")
    signature = machine()
    columns = [measured(options, pairs) for pairs in options.pairs]
    for row, key in ROWS.items():
        digits = 0 if key in ("windows", "added") or " " in key else 2
        table.add_row(row, *(f"{column[key]:,.{digits}f}" for column in columns))
    Console(width=110).print(signature, table, highlight=False)


def measured(options: argparse.Namespace, pairs: int) -> dict[str, float]:
    """The figures of one size, from a process of its own."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        out = Path(folder)
        repeat(options.data, out, pairs)
        command = [sys.executable, __file__, "--measure", "--data", str(out)]
        command += ["--recipe", options.recipe]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found | {
        "start": found["import"] + found["open"] + found["first"],
        "added": found["all RssAnon"] - found["import RssAnon"],
        "update": found["updates"] / UPDATES * 1000,
        "epoch": found["plan"] * found["windows"],
    }


ROWS = {
    "until the first update is ready": "start",
    "  of this, importing torch and nmtdeep": "import",
    "  of this, opening and checking the data": "open",
    "  of this, planning a window, first batches": "first",
    "  CPU time of all this": "cpu",
    "until the first update in mid-epoch is ready": "resumed",
    "windows in an epoch": "windows",
    "planning a window": "plan",
    "planning an epoch": "epoch",
    "making an update, ms": "update",
    "longest sentence of an older directory": "scan",
    "anonymous memory after the imports, MiB": "import RssAnon",
    "anonymous memory at the end, MiB": "all RssAnon",
    "  more than after the imports": "added",
    "pages of mapped files at the end, MiB": "all RssFile",
    "peak of both, MiB": "all VmHWM",
}


if __name__ == "__main__":
    main()
