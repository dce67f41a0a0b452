"""The demo: every step on a small corpus that ships with the package."""

from __future__ import annotations

import os
import shutil
import sys
import time
from importlib.resources import as_file, files
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import INDEX_FILE
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import resolve_device
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.preprocessing.progress import ProgressBar
from nmtdeep.training.final_scores import finish
from nmtdeep.training.loop import train
from nmtdeep.training.setup import TrainingJob

SAMPLES = 10


def run_demo(out: Path, *, threads: int | None = None, device: str = "auto") -> None:
    """Preprocess, train, average, translate and score the shipped corpus under `out`.

    An interrupted demo is resumed.

    Args:
        out: directory for `data/` and `run/`.
        threads: CPU threads; None keeps torch's choice.
        device: auto, cpu, cuda or cuda:N.
    """
    began = time.perf_counter()
    console = Console(highlight=False, soft_wrap=True)
    # Two processes train such a small model faster than two threads; one alone computes each update
    # faster as one batch.
    several = (threads or torch.get_num_threads()) > 1 and resolve_device(device).type == "cpu"
    recipe = load_recipe("demo", [] if several else ["training.batches.max_tokens=1100"])
    data, run = out / "data", out / "run"
    console.rule("1. preprocess: English-German strings of Home Assistant (Apache-2.0)")
    if not (data / INDEX_FILE).is_file():
        _preprocess(recipe, data, console)
    console.rule("2. train: 12 encoder layers, for a few minutes")
    processes = 2 if several else 1
    stopped = train(TrainingJob(recipe, data, run, device, threads, processes))
    if stopped:
        raise SystemExit(128 + stopped)
    console.rule("3. average the last checkpoints, translate, score")
    finish(recipe, data=data, run=run, device=device)
    console.rule(f"4. {SAMPLES} sentences of the test set")
    _show_samples(run, data, device, console)
    minutes = (time.perf_counter() - began) / 60
    command = "nmtdeep" if shutil.which("nmtdeep") else sys.argv[0]
    console.print(
        f"\nThat took {minutes:.1f} minutes. Everything is in the run directory {run}. Try:\n\n"
        f'  echo "Failed to connect to the server" | {command} translate -m {run}\n'
        f"  {command} recipes list\n",
        markup=False,
    )


def _preprocess(recipe: Recipe, data: Path, console: Console) -> None:
    with as_file(files("nmtdeep") / "demo" / "corpus") as corpus:
        texts = CorpusFiles(corpus / "train", corpus / "dev", [corpus / "test"])
        job = Preprocessing(recipe, texts, out=data)
        report = job.run(workers=os.cpu_count() or 1, progress=ProgressBar())
    report.show(console)


def _show_samples(run: Path, data: Path, device: str, console: Console) -> None:
    corpus = DataDirectory.open(data)
    sources, references = corpus.sources("test"), corpus.references("test")
    places = range(0, len(sources), len(sources) // SAMPLES)[:SAMPLES]
    translator = Translator.load([run], DecodingOptions(device=device))
    translations = translator.translate([sources[place] for place in places])
    for translation, place in zip(translations, places, strict=True):
        console.print(Text(f"source     {translation.source}"))
        console.print(Text(f"nmtdeep    {translation.text}", "bold"))
        console.print(Text(f"reference  {references[place]}\n"))
