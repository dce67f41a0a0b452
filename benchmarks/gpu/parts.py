"""What the first half hour on a GPU measures; each part runs in a process of its own.

A part takes the `Place` of its run and returns figures: numbers and texts, named by their units.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import naive
import numpy as np
import torch
from contenders import adapt, build_ours
from machine import installed, machine
from prepare import ANSWERS, DATA, ROOT, SYNTHETIC, computed, differences
from torch.profiler import ProfilerActivity, profile
from turns import clocks, since, take_turns

from nmtdeep.checkpoint import Loaded
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import resolve_device
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.feed import upcoming
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.run_directory import RECORDS
from nmtdeep.training.state import Progress
from nmtdeep.training.step import PRECISIONS
from nmtdeep.training.trainer import Trainer

BASE, BIG, DEEP = "512/2048/8/6+6", "1024/4096/16/6+6", "512/2048/8/30+6"
LENGTH = 28  # tokens of a sentence that is translated for its time only
Figures = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a part runs: with the folder of `prepare`, an output folder, and pretended or not."""

    kit: Path
    out: Path
    pretend: bool

    @property
    def device(self) -> torch.device:
        return resolve_device("cpu" if self.pretend else "cuda")

    def rows(self) -> dict[str, Figures]:
        """The newest row of each part that was run."""
        path = self.out / "rows.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return {row["part"]: row for row in map(json.loads, lines)}


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Median of seven calls."""
    return take_turns({"": work}, repeats=7, device=device).median("")


def program(place: Place, *words: str) -> str:
    """What a program of this checkout prints, also to the log."""
    environment = os.environ | {"NMTDEEP_TEST_DEVICE": place.device.type}
    command = [sys.executable, *words]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    print(done.stdout)
    if done.returncode:
        failures = re.findall(r"^(?:FAILED|ERROR) \S+::(\S+)", done.stdout, re.M)
        sys.exit(f"exit code {done.returncode} {' '.join(failures)}")
    return done.stdout


# Does it work


def versions(place: Place) -> Figures:
    return {"": machine(place.device), "cuDNN": torch.backends.cudnn.version() or "none"}


def references(place: Place) -> Figures:
    """The fixed model computes what it did on the CPU that prepared it."""
    expected = json.loads((place.kit / ANSWERS).read_text(encoding="utf-8"))
    return differences(computed(place.kit, place.device), expected)


def equations(place: Place) -> Figures:
    """tests/gpu; the log has the failures."""
    several = ["-n", "6"] if installed("pytest-xdist") else []
    chosen = ["-k", "fp16 and skips"] if place.pretend else several
    words = ("-m", "pytest", "-rf", "-p", "no:cacheprovider", "tests/gpu", *chosen)
    return {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|skip)", program(place, *words))}


# How fast


def ceilings(place: Place) -> Figures:
    """Large products of random matrices, and a copy of memory."""
    device, size, figures = place.device, 256 if place.pretend else 8192, {}
    settings = {"bf16": (torch.bfloat16, "highest"), "tf32": (torch.float32, "high")}
    for name, (dtype, precision) in (settings | {"fp32": (torch.float32, "highest")}).items():
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        taken = seconds(partial(torch.mm, a, b), device)
        figures[f"TFLOP/s in {name}"] = 2 * size**3 / taken / 1e12
    values = torch.randn(4 * size * size, device=device)
    taken = seconds(partial(torch.empty_like(values).copy_, values), device)
    return figures | {"GB/s copied": 2 * values.nbytes / taken / 1e9}


def described(place: Place, shape: str, overrides: tuple[str, ...], tokens: int) -> Recipe:
    """A pre-norm model of the synthetic corpus, dropout 0.1 everywhere, one batch an update."""
    sizes = naive.Shape.parse(shape)
    if place.pretend:
        sizes, tokens = naive.Shape(32, 64, 2, sizes.encoder // 6, 1), 400
    dropout = "{embedding: 0.1, residual: 0.1, attention: 0.1, activation: 0.1}"
    more = (f"model.dropout={dropout}", "training.clip_norm=1.0", *overrides)
    path = place.kit / SYNTHETIC / RECIPE_FILE
    return adapt(path, sizes, tokens=tokens, norm="pre_norm", overrides=more)


def flop(model: Transformer, source: int, target: int) -> float:
    """Of the matrix products of an update with these tokens, without attention's own."""
    encoder, decoder = (
        sum(value.numel() for value in stack.parameters() if value.dim() == 2)
        for stack in (model.encoder, model.decoder)
    )
    return 6.0 * (encoder * source + (decoder + model.output.weight.numel()) * target)


def training(
    place: Place,
    shape: str,
    more: tuple[str, ...] = (),
    tokens: int = 25_000,
    precision: str = "bf16",
) -> Figures:
    """Updates as `nmtdeep train` computes them, from its feed to its step."""
    device, repeats = place.device, 2 if place.pretend else 30
    recipe = described(place, shape, more, tokens)
    data, ranks = DataDirectory.open(place.kit / SYNTHETIC), Ranks(device=device)
    started = clocks(device)
    trainer = Trainer(recipe, data, ranks, dtype=PRECISIONS[precision])
    feed = upcoming(recipe, data, place.out, Progress(), ranks)

    def train(count: int) -> list[Any]:
        return [trainer.train(coming.share, Progress()) for coming in islice(feed, count)]

    train(1)
    to_start = since(started, device=device).wall
    train(repeats)  # meets other lengths of sentences
    started = clocks(device)
    results = train(repeats)
    taken = since(started, device=device).wall
    target = sum(result.target_tokens for result in results)
    source = sum(result.real_tokens for result in results) - target
    figures = {"ms": 1000 * taken / repeats, "target tokens/s": target / taken}
    if peak := place.rows().get("ceilings", {}).get("figures"):
        speed = flop(trainer.model, source, target) / taken / 1e12
        figures["of the bf16 ceiling"] = speed / peak["TFLOP/s in bf16"]
    if device.type == "cuda":
        figures["MB"] = torch.cuda.max_memory_allocated(device) / 2**20
        figures |= profiled(lambda: train(2), taken / repeats)
    feed.close()
    return figures | {"s to start": to_start}


def profiled(two_updates: Callable[[], object], update: float) -> Figures:
    """Kernels, and their share of the `update` seconds that one took; the log has a table."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        two_updates()
        torch.cuda.synchronize()
    averages = profiler.key_averages()
    print(averages.table(sort_by="self_device_time_total", row_limit=25))
    on_gpu = [each for each in averages if each.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(each.self_device_time_total for each in on_gpu) / 1e6
    return {"kernels": sum(each.count for each in on_gpu) / 2, "busy": busy / 2 / update}


def translating(place: Place, sentences: int, *, together: bool = True) -> Figures:
    """A beam search in bf16, 30 steps by an untrained base model, which ends no sentence.

    Args:
        together: in one batch; else as `nmtdeep translate` divides them.
    """
    steps, sentences = (4, 8) if place.pretend else (30, sentences)
    recipe, data = described(place, BASE, (), 4096), DataDirectory.open(place.kit / SYNTHETIC)
    types = len(data.pipeline.target.vocabulary)
    loaded = Loaded(place.kit, recipe, data.pipeline, build_ours(recipe, types).eval(), {})
    options = {"max_length_factor": 0.0, "max_length_constant": steps, "device": str(place.device)}
    options |= {"max_tokens": 4 * LENGTH * sentences} if together else {}
    translator = Translator.of([loaded], DecodingOptions(beam=4, precision="bf16", **options))
    sources = np.random.default_rng(1).integers(3, types, (sentences, LENGTH)).tolist()
    assert {len(found[0].tokens) for found in translator.search(sources)} == {steps}
    taken = seconds(lambda: translator.search(sources), place.device)
    step = {"ms a step": 1000 * taken / steps} if together else {}
    return step | {"sentences/s": sentences / taken}


def peers(place: Place) -> Figures:
    """benchmarks/training.py on the same corpus; the log has its table."""
    sizes = "--shape 32/64/2/1+1 --tokens 400 --updates 1 --repeats 1"
    if not place.pretend:
        sizes = f"--shape {BASE} --tokens 25000 --updates 10"
    words = f"{sizes} --norm pre_norm --precision bf16 --device {place.device}".split()
    printed = program(place, "benchmarks/training.py", "--data", f"{place.kit / SYNTHETIC}", *words)
    return {"over the best peer": re.findall(r"best peer\W+([\d.]+)", printed)[0]}


# Does it learn


def multi30k(place: Place) -> Figures:
    """The published protocol, resumed if time ran out; then the test set."""
    data, out, device = place.kit / DATA, place.out / "run", str(place.device)
    words = ["train", str(data / RECIPE_FILE), "--data", str(data), "--device", device, "--quiet"]
    if place.pretend:
        words += ["model.width=32", "decoding.max_length_constant=10", "--max-updates=20"]
    more = ("training.max_minutes=7.5", "--no-final-scores", "--out", str(out))
    program(place, "-m", "nmtdeep", *words, *more)
    test = data / DataDirectory.open(data).splits[-1]
    words = ["-m", str(out), "--source", f"{test}.en", "--reference", f"{test}.de", "--device"]
    words += [device, "--metric", "bleu-tok-lc", "--tokenize", "de", "--json"]
    (score,) = json.loads(program(place, "-m", "nmtdeep", "score", *words))
    records = (out / RECORDS).read_text(encoding="utf-8").splitlines()
    last = [row for row in map(json.loads, records) if row["kind"] == "train"][-1]
    figures = {"BLEU": score["value"], "updates": last["update"]}
    return figures | {"updates/s": last["updates_per_second"], "of the time waiting": last["wait"]}
