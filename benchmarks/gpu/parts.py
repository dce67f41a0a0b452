"""The parts of the first half hour on a GPU: functions of a `Place` that return figures."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import naive
import numpy as np
import torch
from contenders import adapt, build_ours
from machine import installed
from prepare import ANSWERS, DATA, ROOT, SYNTHETIC, computed, differences
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import profile, supported_activities
from turns import clocks, since, take_turns

from nmtdeep.checkpoint import Loaded
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import resolve_device
from nmtdeep.model.kernels import gpu_attention
from nmtdeep.packing import Packing
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.feed import upcoming
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.run_directory import RECORDS
from nmtdeep.training.state import Progress
from nmtdeep.training.trainer import Trainer

BASE, BIG, DEEP = "512/2048/8/6+6", "1024/4096/16/6+6", "512/2048/8/30+6"
ROWS = "rows.jsonl"
Figures, More = dict[str, Any], tuple[str, ...]


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
        path = self.out / ROWS
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return {row["part"]: row for row in map(json.loads, lines)}


def program(place: Place, *words: str) -> str:
    """What a program of this checkout prints, also to the log."""
    environment = os.environ | {"NMTDEEP_TEST_DEVICE": place.device.type}
    how = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "text": True}
    lines = []
    with subprocess.Popen([sys.executable, *words], **how) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        sys.exit(f"exit code {process.returncode}: {''.join(lines[-1:])}")
    return "".join(lines)


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


def ceilings(place: Place) -> Figures:
    """A large product of random matrices, and a copy of memory."""
    size = 256 if place.pretend else 8192
    make = partial(torch.randn, device=place.device)
    a, b = (make(size, size).bfloat16() for _ in range(2))
    c = make(4 * size * size)
    work = {"product": partial(torch.mm, a, b), "copy": partial(torch.empty_like(c).copy_, c)}
    turns = take_turns(work, repeats=9, device=place.device)
    speed = {"TFLOP/s in bf16": 2e-12 * size**3 / turns.median("product")}
    return speed | {"GB/s copied": 2e-9 * c.nbytes / turns.median("copy")}


def attention(place: Place) -> Figures:
    """Both passes of attention over short sentences, packed and padded."""
    sentences, heads, repeats = (8, 2, 1) if place.pretend else (450, 8, 20)
    lengths = np.random.default_rng(1).lognormal(np.log(27) - 0.125, 0.5, sentences).clip(1, 200)
    packing = Packing.of(lengths.astype(np.int64)).to(place.device)
    shape = (3, len(packing.places), heads * 64)
    x = torch.randn(shape, device=place.device, dtype=torch.bfloat16, requires_grad=True)
    spans = (packing.offsets, packing.offsets, packing.longest, packing.longest)

    def padded() -> torch.Tensor:
        q, k, v = (packing.pad(part[None]).unflatten(2, (heads, 64)).transpose(1, 2) for part in x)
        return scaled_dot_product_attention(q, k, v, attn_mask=packing.mask, dropout_p=0.1)

    def flash() -> torch.Tensor:
        q, k, v = x.unflatten(2, (heads, 64))
        return gpu_attention.attention(q, k, v, packing, packing, causal=False, dropout_p=0.1)

    def efficient() -> torch.Tensor:
        parts = x[:, None].unflatten(3, (heads, 64))
        forward = torch.ops.aten._efficient_attention_forward
        return forward(*parts, None, *spans, 0.1, 0, compute_log_sumexp=True)[0]

    def both(forward: Callable[[], torch.Tensor]) -> None:
        for _ in range(repeats):
            forward().sum().backward()

    work = {"padded": partial(both, padded)}
    if not place.pretend:  # a CPU has no others
        work |= {"FlashAttention": partial(both, flash), "efficient": partial(both, efficient)}
    turns = take_turns(work, repeats=9, device=place.device)
    return {f"ms {name}": 1000 * turns.median(name) / repeats for name in work}


def described(place: Place, shape: str, overrides: More, tokens: int) -> Recipe:
    """A pre-norm model of the synthetic corpus, dropout 0.1 everywhere, one batch an update."""
    sizes = naive.Shape.parse(shape)
    if place.pretend:
        sizes, tokens = naive.Shape(32, 64, 2, sizes.encoder // 6, 1), 400
    dropout = "{embedding: 0.1, residual: 0.1, attention: 0.1, activation: 0.1}"
    more = (f"model.dropout={dropout}", "training.clip_norm=1.0", *overrides)
    path = place.kit / SYNTHETIC / RECIPE_FILE
    return adapt(path, sizes, tokens=tokens, norm="pre_norm", overrides=more)


def training(place: Place, shape: str = BASE, more: More = (), tokens: int = 25_000) -> Figures:
    """Updates as `nmtdeep train` computes them, from its feed to its step."""
    device, repeats = place.device, 2 if place.pretend else 30
    recipe = described(place, shape, more, tokens)
    data, ranks = DataDirectory.open(place.kit / SYNTHETIC), Ranks(device=device)
    started = clocks(device)
    trainer = Trainer(recipe, data, ranks)
    feed = upcoming(recipe, data, Progress(), ranks)

    def train(count: int) -> list[Any]:
        done = [trainer.train(coming.share, Progress()) for coming in islice(feed, count)]
        return [*chain(*done), *trainer.finish(Progress())]

    train(1)
    to_start = since(started, device=device).wall
    train(repeats)  # meets other lengths of sentences
    turns = []
    for _ in range(3):  # a batch of an unusual size has the layers compiled once more, for seconds
        started = clocks(device)
        results = train(repeats)
        turns.append((since(started, device=device).wall, results))
    taken, results = sorted(turns, key=itemgetter(0))[1]
    target = sum(result.target_tokens for result in results)
    source = sum(result.real_tokens for result in results) - target
    figures = {"ms": 1000 * taken / repeats, "target tokens/s": target / taken}
    if peak := place.rows().get("ceilings", {}).get("figures"):
        stacks = (trainer.model.encoder, trainer.model.decoder, trainer.model.output)
        encoder, decoder, output = (sum(map(torch.numel, part.parameters())) for part in stacks)
        flop = 6.0 * (encoder * source + (decoder + output) * target)  # without attention's own
        figures["of the bf16 ceiling"] = flop / taken / 1e12 / peak["TFLOP/s in bf16"]
    figures["MB"] = torch.cuda.max_memory_allocated() / 2**20
    figures |= profiled(lambda: train(2), taken / repeats)
    feed.close()
    return figures | {"s to start": to_start}


def profiled(two_updates: Callable[[], object], update: float) -> Figures:
    """Kernels, and their share of the `update` seconds that one took; the log has a table."""
    with profile(activities=supported_activities()) as profiler:
        two_updates()
    averages = profiler.key_averages()
    print(averages.table(sort_by="self_device_time_total", row_limit=25))
    on_gpu = [each for each in averages if each.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(each.self_device_time_total for each in on_gpu) / 2e6 / update
    return {"kernels": sum(each.count for each in on_gpu) / 2, "busy": busy}


def translating(place: Place, sentences: int, *, together: bool = True) -> Figures:
    """A beam search of 30 steps in bf16, in one batch or in those that `translate` would choose."""
    steps, sentences = (4, 8) if place.pretend else (30, sentences)
    recipe, data = described(place, BASE, (), 4096), DataDirectory.open(place.kit / SYNTHETIC)
    types = len(data.pipeline.target.vocabulary)
    model = build_ours(recipe, types).eval()
    with torch.no_grad():
        model.output.weight[EOS] = 0  # other types have better scores, so that no sentence ends
    options = {"max_length_factor": 0.0, "max_length_constant": steps, "device": str(place.device)}
    options |= {"max_tokens": 4 * 28 * sentences} if together else {}
    loaded = Loaded(place.kit, recipe, data.pipeline, model, {})
    translator = Translator.of([loaded], DecodingOptions(beam=4, precision="bf16", **options))
    sources = np.random.default_rng(1).integers(3, types, (sentences, 28)).tolist()
    search = partial(translator.search, sources)
    assert max(len(found[0].tokens) for found in search()) == steps
    taken = take_turns({"": search}, repeats=5, device=place.device).median("")
    step = {"ms a step": 1000 * taken / steps} if together else {}
    return step | {"sentences/s": sentences / taken}


def multi30k(place: Place) -> Figures:
    """The published protocol, resumed if time ran out; then the test set."""
    data, out, device = place.kit / DATA, place.out / "run", str(place.device)
    words = ["train", str(data / RECIPE_FILE), "--data", str(data), "--out", str(out), "--quiet"]
    words += ["training.max_minutes=7.5", "--no-final-scores", "--device", device]
    words += ["--max-updates=20"] * place.pretend
    program(place, "-m", "nmtdeep", *words)
    test = data / DataDirectory.open(data).splits[-1]
    words = ["score", "-m", str(out), "--source", f"{test}.en", "--reference", f"{test}.de"]
    words += ["--metric", "bleu-tok-lc", "--tokenize", "de", "--json", "--device", device]
    (score,) = json.loads(program(place, "-m", "nmtdeep", *words))
    records = (out / RECORDS).read_text(encoding="utf-8").splitlines()
    last = [row for row in map(json.loads, records) if row["kind"] == "train"][-1]
    figures = {"BLEU": score["value"], "updates": last["update"]}
    return figures | {"updates/s": last["updates_per_second"], "of the time waiting": last["wait"]}
