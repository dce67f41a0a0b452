"""The parts of measure.py: functions of a `Place` that return figures."""

import json
import re
import statistics
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from contenders import build_ours
from machine import installed, machine
from place import BASE, Figures, More, Place, program, started
from prepare import ANSWERS, DATA, SYNTHETIC, computed, differences
from torch.profiler import profile, supported_activities
from turns import clocks, since, take_turns

from nmtdeep.checkpoint import RECORDS, Loaded
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import RankBatches
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE
from nmtdeep.decoding.translator import Translator
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.feed import upcoming
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress
from nmtdeep.training.step import Step, UpdateResult
from nmtdeep.training.trainer import Trainer

WHERE = "where"  # figures of their own
CEILING = "TFLOP/s in bf16"
# The first family with a match in the kernel's name has it.
FAMILIES = {
    "attention": r"flash|fmha|attention|attn|^_(forward|backward)",
    "sums of DLCL": r"gemmk1|gemv|gemmSN|magma|nt_align1|^_dots|_sums|combin",
    "optimizer": r"multi_tensor|adam|foreach|lpnorm|total_norm",
    "loss": r"softmax|nll|cross_entropy|loss|logsumexp|exp_log",
    "products": r"gemm|nvjet|cutlass|cublas|xmma|splitk|triton_tem|mm$|linear",
    "copies": r"memcpy|memset|copy_kernel|fillfunctor|^triton_poi_fused__?to_copy_\d+$|catarray",
    "norms, dropout, residuals": r"^triton_|norm|gammabeta|dropout|relu|reduce_kernel|cudafunctor",
}
Kernel = tuple[str, float, float]


def versions(place: Place) -> Figures:
    """The machine, and the ceilings of its products and of its memory."""
    return {"": machine(place.device), **ceilings(place)}


def references(place: Place) -> Figures:
    """The fixed model computes what it did on the CPU that prepared it."""
    expected = json.loads((place.kit / ANSWERS).read_text(encoding="utf-8"))
    return differences(computed(place.kit, place.device), expected)


def equations(place: Place) -> Figures:
    """tests/gpu; the log has the failures."""
    how = ["-n", "8"] if installed("pytest-xdist") else []
    if place.pretend:
        how = ["--collect-only"]
    printed = program(place, "-m", "pytest", "-rf", "-p", "no:cacheprovider", "tests/gpu", *how)
    return {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|skip|tests coll)", printed)}


def ceilings(place: Place) -> Figures:
    """A large product of random matrices, and a copy of memory."""
    size = 256 if place.pretend else 8192
    make = partial(torch.randn, device=place.device)
    a, b = (make(size, size).bfloat16() for _ in range(2))
    c = make(4 * size * size)
    work = {"product": partial(torch.mm, a, b), "copy": partial(torch.empty_like(c).copy_, c)}
    turns = take_turns(work, repeats=9, device=place.device)
    speed = {CEILING: 2e-12 * size**3 / turns.median("product")}
    return speed | {"GB/s copied": 2e-9 * c.nbytes / turns.median("copy")}


def training(
    place: Place,
    shape: str = BASE,
    more: More = (),
    tokens: int = 25_000,
    *,
    first_only: bool = False,
) -> Figures:
    """Updates of the synthetic text."""
    # An epoch has 64 updates of 25,000 tokens.
    warm = 64 if tokens < 50_000 else 30
    recipe = place.recipe(shape, more, tokens)
    return measured(place, recipe, place.kit / SYNTHETIC, warm=warm, first_only=first_only)


def small_model(place: Place) -> Figures:
    """Updates of multi30k-en-de, 571 in all."""
    folder = place.kit / DATA
    recipe = load_recipe(str(folder / RECIPE_FILE), place.tiny)
    return measured(place, recipe, folder, warm=120, repeats=150)


def measured(
    place: Place,
    recipe: Recipe,
    folder: Path,
    *,
    warm: int,
    repeats: int = 30,
    first_only: bool = False,
) -> Figures:
    """Updates as `nmtdeep train` computes them, from its feed to its step.

    After `warm` updates, the median of three turns of `repeats`.
    """
    device = place.device
    warm, repeats = (1, 2) if place.pretend else (warm, repeats)
    torch.zeros(1, device=device)
    figures = {"s of imports and context": place.since_began}
    data, ranks = DataDirectory.open(folder), Ranks(device=device)
    setup = Setup(recipe, data, ranks)
    trainer = Trainer(setup)
    turns, done, waited = [], 0, 0.0
    with closing(upcoming(setup, Progress())) as feed:

        def train(count: int) -> list[UpdateResult]:
            nonlocal done, waited
            results = []
            for coming in islice(feed, count):
                results.append(trainer.train(coming.batches, Progress(update=done)))
                done, waited = done + 1, waited + coming.waited
            return [*chain(*results), *trainer.finish(Progress(update=done))]

        train(1)
        figures["s to first"] = place.since_began
        if first_only:
            return figures
        train(warm)
        waited = 0.0
        for _ in range(3):
            began = clocks(device)
            results = train(repeats)
            turns.append((since(began, device=device).wall, results))
        figures |= speed(trainer, *sorted(turns, key=itemgetter(0))[1])
        figures["waiting"] = waited / sum(seconds for seconds, _ in turns)
        figures |= graphs(trainer)
        ceiling = ceilings(place)[CEILING]
        figures["of the ceiling"] = figures.pop("TFLOP/s") / ceiling
        print(json.dumps(figures), flush=True)  # these count if what follows fails
        try:
            shares = [coming.batches for coming in islice(feed, 3 if place.pretend else 5)]
            figures[WHERE] = on_the_host(trainer.step, shares)
            rows = kernels(partial(train, 3), 3, device)
            figures[WHERE] |= by_family(rows)
            for name, ms, launches in rows[:12]:
                print(f"{ms:8.3f} ms {launches:7.1f} launches  {name[:150]}")
        except Exception as error:
            traceback.print_exc()
            figures[WHERE] = {**figures.get(WHERE, {}), "failed": str(error)[-300:]}
    return figures


def speed(trainer: Trainer, seconds: float, results: list[UpdateResult]) -> Figures:
    """Rates, memory and padding of updates that took so many seconds."""
    target = sum(result.target_tokens for result in results)
    real, cells = (
        sum(getattr(result, name) for result in results)
        for name in ("real_tokens", "padded_tokens")
    )
    stacks = (trainer.model.encoder, trainer.model.decoder, trainer.model.output)
    encoder, decoder, output = (sum(map(torch.numel, part.parameters())) for part in stacks)
    flop = 6.0 * (encoder * (real - target) + (decoder + output) * target)  # attention not counted
    return {
        "ms": 1000 * seconds / len(results),
        "updates/s": len(results) / seconds,
        "target tokens/s": target / seconds,
        "TFLOP/s": flop / seconds / 1e12,
        "padded": 1 - real / cells,
        "GB allocated": torch.cuda.max_memory_allocated() / 1e9,
        "GB reserved": torch.cuda.max_memory_reserved() / 1e9,
    }


def graphs(trainer: Trainer) -> Figures:
    """Which share of the batches graphs replayed so far."""
    passes = trainer.step.passes
    return {"replayed": passes.replayed / passes.count, "graphs": len(passes.graphs)}


def starting(place: Place) -> Figures:
    """Seconds until `nmtdeep train` of multi30k-en-de shows a line and an update, two times."""
    data, figures = place.kit / DATA, {}
    for again in ("", ", again"):
        with TemporaryDirectory() as out:
            words = ["train", str(data / RECIPE_FILE), "--data", str(data), "--out", f"{out}/run"]
            words += ["training.log_every=1", "--max-updates=50", "--device", str(place.device)]
            words += place.tiny
            began = time.time()
            command = ("-u", "-m", "nmtdeep", *words)
            with started(place, *command, stderr=subprocess.STDOUT) as process:
                for line in process.stdout:
                    print(f"{time.time() - began:6.2f} {line}", end="", flush=True)
                    figures.setdefault(f"s to a line{again}", time.time() - began)
                    if re.search(r"update \d+/|first update", line):
                        figures[f"s to first{again}"] = time.time() - began
                        process.kill()
                        break
        if f"s to first{again}" not in figures:
            sys.exit(f"ended without an update, exit code {process.returncode}")
    return figures


def translating(place: Place, sentences: int, *, together: bool = True) -> Figures:
    """A beam search of 30 steps in bf16, in one batch or in those that `translate` would choose."""
    steps, sentences = (4, 8) if place.pretend else (30, sentences)
    recipe, data = place.recipe(BASE, (), 4096), DataDirectory.open(place.kit / SYNTHETIC)
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
    for _ in range(2):
        assert max(len(found[0].tokens) for found in search()) == steps
    taken = take_turns({"": search}, repeats=5, device=place.device).median("")
    step = {"ms a step": 1000 * taken / steps} if together else {}
    memory = {"GB reserved": torch.cuda.max_memory_reserved() / 1e9}
    return step | {"sentences/s": sentences / taken} | memory


def learning(place: Place) -> Figures:
    """The published protocol, as far as the time goes; then the test set."""
    data, out, device = place.kit / DATA, place.out / "run", str(place.device)
    minutes = max(place.seconds - 60, 10) / 60  # what remains is for starting and the test set
    words = ["train", str(data / RECIPE_FILE), "--data", str(data), "--out", str(out), "--quiet"]
    words += [f"training.max_minutes={minutes:.2f}", "--no-final-scores", "--device", device]
    if place.pretend:
        words += ["--max-updates=2", "training.log_every=1", *place.tiny]
    program(place, "-m", "nmtdeep", *words)
    test = data / DataDirectory.open(data).splits[-1]
    words = ["score", "-m", str(out), "--source", f"{test}.en", "--reference", f"{test}.de"]
    words += ["--metric", "bleu-tok-lc", "--tokenize", "de", "--json", "--device", device]
    (score,) = json.loads(program(place, "-m", "nmtdeep", *words))
    records = (out / RECORDS).read_text(encoding="utf-8").splitlines()
    last = [row for row in map(json.loads, records) if row["kind"] == "train"][-1]
    figures = {"BLEU": score["value"], "updates": last["update"]}
    return figures | {"updates/s": last["updates_per_second"], "of the time waiting": last["wait"]}


# Where an update spends its time: the host's, and the kernels' by family.


def family(kernel: str) -> str:
    """The family of a kernel by its name, which is a guess for Inductor's: they fuse several."""
    for name, pattern in FAMILIES.items():
        if re.search(pattern, kernel, re.I):
            return name
    return "rest"


def kernels(updates: Callable[[], object], count: int, device: torch.device) -> list[Kernel]:
    """Name, ms and launches an update of each kernel, longest first; on a CPU of operators."""
    with profile(activities=supported_activities()) as profiler:
        updates()
    kind, clock = torch.autograd.DeviceType.CPU, "self_cpu_time_total"
    if device.type == "cuda":
        kind, clock = torch.autograd.DeviceType.CUDA, "self_device_time_total"
    rows = [
        (each.key, getattr(each, clock) / 1000 / count, each.count / count)
        for each in profiler.key_averages()
        # Ranges such as Optimizer.step span kernels that have rows of their own.
        if each.device_type == kind
        and not (getattr(each, "is_user_annotation", False) or "Optimizer." in each.key)
    ]
    return sorted(rows, key=lambda row: -row[1])


def by_family(rows: Sequence[Kernel]) -> Figures:
    """Launches and ms of all kernels, and ms of each family."""
    spent: Counter[str] = Counter(dict.fromkeys((*FAMILIES, "rest"), 0.0))
    for name, ms, _ in rows:
        spent[family(name)] += ms
    totals = {"kernels": sum(row[2] for row in rows), "ms of kernels": spent.total()}
    return totals | {f"ms {name}": ms for name, ms in spent.items() if ms >= 0.005}


def on_the_host(step: Step, shares: Sequence[RankBatches], lr: float = 1e-5) -> Figures:
    """Median ms until `forward_backward` and `apply` return, the device having been idle."""
    spent: dict[str, list[float]] = {"forward_backward": [], "apply": []}

    def idle() -> float:
        if step.device.type == "cuda":
            torch.cuda.synchronize(step.device)
        return time.perf_counter()

    for number, share in enumerate(shares, 1):
        began = idle()
        done = step.forward_backward(share, number)
        spent["forward_backward"].append(time.perf_counter() - began)
        began = idle()
        wait = step.apply(done, lr)
        spent["apply"].append(time.perf_counter() - began)
        wait()
    return {f"host ms {name}": 1000 * statistics.median(each) for name, each in spent.items()}
