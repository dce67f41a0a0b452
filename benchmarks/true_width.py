"""The methods at the papers' true width, trained to a real score, in slices of time.

    python benchmarks/true_width.py --data DIR --out DIR --minutes 9 [--depths 6 12 20 30]
        [--methods NAME ...] [--recipe tatoeba-en-de] [--device cuda] [KEY=VALUE ...]
    python benchmarks/true_width.py --out DIR --table

For an accelerator that is at hand for minutes. One method and depth (of both sides) after the
other is trained by nmtdeep train in a run directory below --out, averaged, and scored on the
validation set. When the time is up the training saves and leaves, and the same command goes on from
there; exit code 75 until all are done. DIR/true_width.json has one entry a training: BLEU and chrF
with their signatures, perplexity, parameters, target tokens per second, wall time, and what it ran
on. A training that diverged is an entry too.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from convergence import METHODS, both
from miniature import parse
from rich.console import Console
from rich.table import Table
from trials import read_records, versions

from nmtdeep import checkpoint
from nmtdeep.config.load import load_recipe
from nmtdeep.training.run_directory import LOG

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "true_width.json"
NOT_DONE = 75
USUAL = (
    *("pre-norm", "glorot-normal", "lipschitz-normal", "lipschitz-small"),
    *("ds-init-0.25", "dlcl-pre", "dlcl-post", "deep-norm"),
)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The methods at true width, in slices of time")
    parser.add_argument("--data", type=Path, help="preprocessed data directory")
    parser.add_argument("--out", type=Path, required=True, help=f"run directories and {RESULTS}")
    parser.add_argument("--minutes", type=float, default=9.0, help="then save and leave")
    parser.add_argument("--recipe", default="tatoeba-en-de")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--depths", type=int, nargs="+", default=[6, 12, 20, 30])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=USUAL, metavar="NAME")
    parser.add_argument("--table", action="store_true", help="show the results, train nothing")
    return parse(parser, given)


def train(options: argparse.Namespace, run: Path, changes: Sequence[str], until: float) -> int:
    """`nmtdeep train`, asked to leave by SIGTERM at `until`; its exit code, 75 if it was asked."""
    words = [options.recipe, "--data", str(options.data), "--out", str(run)]
    command = [sys.executable, "-m", "nmtdeep", "train", *words, "--device", options.device]
    command += ["-q", "--final-scores"]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen([*command, *changes], env=environment) as process:
        try:
            return process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.terminate()
            return NOT_DONE if process.wait() else 0


def diverged(run: Path) -> bool:
    """Whether that is what a training ended with."""
    log = run / LOG
    return log.exists() and "training diverged at update" in log.read_text(encoding="utf-8")


def entry(run: Path, *, method: str, depth: int) -> dict[str, Any]:
    """What a training came to."""
    records = read_records(run)
    updates = [one for one in records if one["kind"] == "train"]
    validations = [one for one in records if one["kind"] == "validation"]
    found: dict[str, Any] = {
        "method": method,
        "depth": depth,
        "diverged": diverged(run),
        "updates": updates[-1]["update"] if updates else 0,
        "seconds": updates[-1]["seconds"] if updates else 0.0,
        "tokens_per_second": statistics.median(one["tokens_per_second"] for one in updates)
        if updates
        else None,
        "perplexity": validations[-1]["valid_ppl"] if validations else None,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        **versions(),
    }
    if not found["diverged"]:
        model = checkpoint.load(run).model
        report = json.loads((run / "scores.json").read_text(encoding="utf-8"))
        found["parameters"] = sum(one.numel() for one in model.parameters())
        found["scores"] = report["scores"]["valid"]
    return found


def train_all(options: argparse.Namespace) -> bool:
    """Whether all trainings are done; each one's entry is written when it ends."""
    until = time.monotonic() + 60 * options.minutes
    path = options.out / RESULTS
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for depth in options.depths:
        for method in options.methods:
            name = f"{method}-{depth}+{depth}"
            if name in done:
                continue
            changes = [*both("depth", str(depth)), *METHODS[method], *options.overrides]
            load_recipe(options.recipe, changes)  # a slip is told here
            code = train(options, options.out / name, changes, until)
            if code == NOT_DONE:
                return False
            if code and not diverged(options.out / name):
                sys.exit(f"{name}: nmtdeep train left with code {code}")
            done[name] = entry(options.out / name, method=method, depth=depth)
            path.write_text(json.dumps(done, indent=1) + "\n")
            print(name, json.dumps(done[name]), flush=True)
    return True


def rows(results: dict[str, Any]) -> list[list[str]]:
    """One line a training."""
    table = [["training", "BLEU", "chrF", "ppl", "parameters", "target tok/s", "minutes"]]
    for name, one in results.items():
        scores = {score["metric"]: f"{score['value']:.2f}" for score in one.get("scores", ())}
        table.append(
            [
                name,
                scores.get("bleu", "diverged" if one["diverged"] else ""),
                scores.get("chrf", ""),
                "" if one["perplexity"] is None else f"{one['perplexity']:.2f}",
                f"{one['parameters']:,}" if "parameters" in one else "",
                "" if one["tokens_per_second"] is None else f"{one['tokens_per_second']:,.0f}",
                f"{one['seconds'] / 60:.1f}",
            ]
        )
    return table


def main() -> None:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    done = options.table or train_all(options)
    path = options.out / RESULTS
    head, *lines = rows(json.loads(path.read_text()) if path.exists() else {})
    table = Table(*head)
    for line in lines:
        table.add_row(*line)
    Console(width=120).print(table)
    if not done:
        print("not done: the same command goes on")
        sys.exit(NOT_DONE)


if __name__ == "__main__":
    main()
