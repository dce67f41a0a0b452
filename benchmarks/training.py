"""Training speed against a naive torch loop and against the bare matrix products.

    python benchmarks/training.py --data DIR [--updates N] [--repeats N] [--precision fp32]

DIR is a data directory of nmtdeep preprocess; for the usual figures Multi30k with recipe
multi30k-en-de and text.bpe.merges=8000. In one process, nmtdeep's own update and the two variants
of benchmarks/naive.py take turns on the same batches, from the same weights, with the same dropout,
smoothing and learning rate, each collating its batches itself. Ratios are formed within a turn.
Before any timing, loss and gradients of the two are compared (fp32, no dropout).

On a machine that others use too, wall-clock time says little, and threads that wait for each other
suffer most: read the ratio of CPU time there, with --threads 1, where no waiting counts as work.

The floor is the time of the matrix products of all weights alone, forwards and backwards, measured
in the same turns at the model's own shapes on the padded positions; attention's small products and
everything else count nothing in it.
"""

import argparse
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import naive
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import nmtdeep
from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.data import batching
from nmtdeep.data.batching import Batch, Indices
from nmtdeep.data.corpus import RECIPE_FILE, DataDirectory, ParallelCorpus
from nmtdeep.model.build import build, initialise
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.update import batch_loss, make_optimiser, train_update

LR = 1e-4
ROWS = 2048  # of one matrix product of the floor
WARM_UP = 1  # updates of each contender before the first turn
OURS, FLOOR = "nmtdeep", "products alone"
YARDSTICK, TUNED = "naive, SDPA", "naive, tuned"
KERNELS = {YARDSTICK: naive.sdpa, TUNED: naive.written_out}
PARTS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}
LEAVES = {"qkv": "inputs", "output": "output", "inner": "0", "outer": "2"}
Step = Callable[[Batch], float]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training speed against a naive torch loop")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument("--updates", type=int, default=10, help="updates in a turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each contender")
    parser.add_argument("--precision", choices=("fp32", "bf16", "both"), default="both")
    parser.add_argument("--shape", type=naive.Shape.parse, default="256/1024/4/6+6")
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens of an update")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    parser.add_argument("--norm", choices=("pre_norm", "post_norm"), help="default: the recipe's")
    return parser.parse_args()


def adapt(path: Path, shape: naive.Shape, *, tokens: int, norm: str | None = None) -> Recipe:
    """The recipe at `path` in another shape, with dropout 0.1 where `base` models have it."""
    overrides = [
        f"model.width={shape.width}",
        "model.embeddings.sharing=all",
        "model.dropout={embedding: 0.1, residual: 0.1, attention: 0, activation: 0}",
        f"training.batches.tokens_per_update={tokens}",
        f"training.batches.group_tokens={tokens}",
        f"training.batches.max_tokens={tokens}",
        "training.label_smoothing=0.1",
        "training.clip_norm=0",
    ]
    for side in ("encoder", "decoder"):
        overrides += [
            f"model.{side}.depth={getattr(shape, side)}",
            f"model.{side}.heads={shape.heads}",
            f"model.{side}.feed_forward={shape.feed_forward}",
        ]
        if norm:
            overrides.append(f"model.{side}.residual={norm}")
    return load_recipe(str(path), overrides)


def build_ours(recipe: Recipe, types: int) -> Transformer:
    model = build(recipe.model, source_types=types, target_types=types)
    initialise(model, recipe.model, seed=recipe.training.seed)
    return model


def build_naive(
    recipe: Recipe, ours: Transformer, kernel: naive.Kernel, *, dropout: float
) -> naive.NaiveTransformer:
    """The naive model of the same shape with the same weights."""
    model, encoder, decoder = recipe.model, recipe.model.encoder, recipe.model.decoder
    shape = naive.Shape(
        model.width, encoder.feed_forward, encoder.heads, encoder.depth, decoder.depth
    )
    made = naive.NaiveTransformer(
        ours.output.weight.shape[0],
        shape,
        pre_norm=encoder.residual.type == "pre_norm",
        dropout=dropout,
        pad=ours.pad,
        kernel=kernel,
    )
    made.to(ours.output.weight.dtype)
    made.load_state_dict(renamed(dict(ours.named_parameters())))
    return made


def renamed(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters, or their gradients, under the names and in the packing of the naive model."""
    theirs: dict[str, Tensor] = {"embedding.weight": ours["source_embedding.weight"]}
    for name, value in ours.items():
        top = re.fullmatch(r"(encoder|decoder)\.norm\.(\w+)", name)
        inner = re.fullmatch(
            r"(encoder|decoder)\.layers\.(\d+)\.sublayers\.(\d+)\.(?:sublayer\.)?(\w+)\.(\w+)", name
        )
        if top:
            theirs[f"{top[1]}_norm.{top[2]}"] = value
        elif inner:
            stack, layer, number, leaf, kind = inner.groups()
            part = f"{stack}.{layer}.{PARTS[stack][int(number)]}"
            if leaf == "norm":
                theirs[f"{stack}.{layer}.norms.{number}.{kind}"] = value
            elif leaf == "query":
                packed = (value, ours[name.replace("query", "key_value")])
                theirs[f"{part}.inputs.{kind}"] = torch.cat(packed)
            elif leaf != "key_value":
                theirs[f"{part}.{LEAVES[leaf]}.{kind}"] = value
    return theirs


def largest_difference(recipe: Recipe, types: int, batch: Batch, *, dtype: torch.dtype) -> float:
    """Between our loss and gradients and the naive ones, relative to the largest of each tensor."""
    smoothing = recipe.training.label_smoothing
    ours = build_ours(recipe, types).to(dtype).eval()
    sums = batch_loss(ours, batch, smoothing=smoothing, dtype=dtype)
    (sums.smoothed / batch.target_tokens).backward()
    gradients = renamed({name: value.grad for name, value in ours.named_parameters()})
    worst = 0.0
    for kernel in KERNELS.values():
        model = build_naive(recipe, ours, kernel, dropout=0.0)
        loss = naive.loss_per_token(
            model,
            batch.source,
            batch.target_input,
            batch.target_output,
            smoothing=smoothing,
            bf16=False,
        )
        loss.backward()
        expected = float(loss.detach())
        worst = max(worst, abs(float(sums.smoothed.detach()) / batch.target_tokens / expected - 1))
        scale = max(float(value.grad.abs().max()) for value in model.parameters())
        for name, value in model.named_parameters():
            gap = float((gradients[name] - value.grad).abs().max())
            worst = max(worst, gap / scale)
    return worst


def our_step(recipe: Recipe, model: Transformer, dtype: torch.dtype) -> Step:
    optimiser = make_optimiser(model, recipe.training.optimiser)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    done = 0

    def step(batch: Batch) -> float:
        nonlocal done
        done += 1
        result = train_update(
            model,
            optimiser,
            scaler,
            [batch],
            update=done,
            lr=LR,
            settings=recipe.training,
            dtype=dtype,
        )
        return result.loss / result.target_tokens

    return step


def naive_step(recipe: Recipe, name: str, ours: Transformer, dtype: torch.dtype) -> Step:
    model = build_naive(recipe, ours, KERNELS[name], dropout=recipe.model.dropout.residual)
    adam = recipe.training.optimiser
    optimiser = torch.optim.Adam(
        model.parameters(),
        lr=LR,
        betas=adam.betas,
        eps=adam.epsilon,
        fused=True if name == TUNED else None,
    )

    def step(batch: Batch) -> float:
        return naive.train_step(
            model,
            optimiser,
            batch.source,
            batch.target_input,
            batch.target_output,
            smoothing=recipe.training.label_smoothing,
            bf16=dtype == torch.bfloat16,
        )

    return step


@dataclass(frozen=True)
class Work:
    """What a turn trains on; every turn has the same."""

    corpus: ParallelCorpus
    plan: list[Indices]
    source: int
    target: int
    target_tokens: int
    real_tokens: int

    def batches(self) -> Iterator[Batch]:
        return (batching.collate(self.corpus, indices) for indices in self.plan)

    @classmethod
    def choose(cls, corpus: ParallelCorpus, *, tokens: int, updates: int) -> "Work":
        """The first updates of an epoch, one batch each; the order is random."""
        lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
        plan = batching.updates(
            lengths, group_tokens=tokens, tokens_per_update=tokens, seed=1, epoch=0
        )
        chosen = [group for groups in plan for group in groups][:updates]
        batches = [batching.collate(corpus, indices) for indices in chosen]
        return cls(
            corpus,
            chosen,
            sum(batch.source.numel() for batch in batches),
            sum(batch.target_output.numel() for batch in batches),
            sum(batch.target_tokens for batch in batches),
            sum(batch.real_tokens for batch in batches),
        )


@dataclass(frozen=True)
class Product:
    """A weight `(outputs, inputs)`, of how many matrices, over how many rows in a turn."""

    inputs: int
    outputs: int
    rows: int

    @property
    def flops(self) -> int:
        """Forwards, and backwards to the input and to the weight."""
        return 6 * self.inputs * self.outputs * self.rows


def products(model: Transformer, work: Work) -> list[Product]:
    """Every matrix product of a turn with a weight, equal shapes taken together."""
    rows: dict[tuple[int, int], int] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            reads_source = name.startswith("encoder") or name.endswith("key_value")
            shape = (module.in_features, module.out_features)
            rows[shape] = rows.get(shape, 0) + (work.source if reads_source else work.target)
    types, width = model.output.weight.shape
    rows[width, types] = rows.get((width, types), 0) + work.target_tokens
    return [Product(inputs, outputs, count) for (inputs, outputs), count in rows.items()]


class Spent(NamedTuple):
    """Seconds by the clock on the wall, and of all threads of this process."""

    wall: float
    cpu: float


def clocks() -> Spent:
    return Spent(time.perf_counter(), time.process_time())


def since(started: Spent, share: float = 1.0) -> Spent:
    now = clocks()
    return Spent((now.wall - started.wall) * share, (now.cpu - started.cpu) * share)


def floor(model: Transformer, work: Work, dtype: torch.dtype) -> Spent:
    """Time of all products of a turn, from a few of each shape, into buffers that exist already."""
    spent, trials = [], 3
    for product in products(model, work):
        x, y = (torch.randn(ROWS, size).to(dtype) for size in (product.inputs, product.outputs))
        weight = torch.randn(product.outputs, product.inputs).to(dtype)
        out_x, out_y, out_weight = (torch.empty_like(value) for value in (x, y, weight))
        started = clocks()
        for trial in range(1 + trials):
            if trial == 1:  # the first one is there to warm up
                started = clocks()
            torch.mm(x, weight.t(), out=out_y)
            torch.mm(y, weight, out=out_x)
            torch.mm(y.t(), x, out=out_weight)
        spent.append(since(started, product.rows / ROWS / trials))
    return Spent(sum(part.wall for part in spent), sum(part.cpu for part in spent))


@dataclass
class Measured:
    """What each turn took by contender, and the loss each ended with."""

    spent: dict[str, list[Spent]]
    losses: dict[str, float]

    def ratios(self, others: list[str], clock: str) -> list[float]:
        """The best of `others` against us, turn by turn: above 1, we are faster."""
        turns = zip(*(self.seconds(name, clock) for name in others), strict=True)
        pairs = zip(turns, self.seconds(OURS, clock), strict=True)
        return [min(turn) / ours for turn, ours in pairs]

    def seconds(self, name: str, clock: str) -> list[float]:
        return [getattr(turn, clock) for turn in self.spent[name]]


def measure(recipe: Recipe, types: int, work: Work, dtype: torch.dtype, repeats: int) -> Measured:
    ours = build_ours(recipe, types)
    steps = {name: naive_step(recipe, name, ours, dtype) for name in KERNELS}
    steps = {OURS: our_step(recipe, ours, dtype), **steps}
    found = Measured({name: [] for name in (*steps, FLOOR)}, {})
    for step in steps.values():
        for _, batch in zip(range(WARM_UP), work.batches(), strict=False):
            step(batch)
    for _ in range(repeats):
        for name, step in steps.items():
            started = clocks()
            for batch in work.batches():
                found.losses[name] = step(batch)
            found.spent[name].append(since(started))
        found.spent[FLOOR].append(floor(ours, work, dtype))
    return found


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def report(found: Measured, work: Work, flops: int, precision: str) -> Table:
    threads, turns = torch.get_num_threads(), len(found.spent[OURS])
    table = Table(
        title=f"training, {precision}; threads: {threads}; medians of {turns} turns",
        caption="nmtdeep over it: speed ratio within a turn, median (least to most), above 1 where "
        "nmtdeep is faster;\nover the products alone, it is the share of the floor that it reaches",
    )
    headings = ("contender", "target tokens/s", "nmtdeep over it", "tokens/CPU s", "by CPU time")
    for heading in (*headings, "GFLOP/CPU s", "loss"):
        table.add_column(heading, justify="left" if heading == "contender" else "right")
    rows = {name: [name] for name in found.spent} | {"best naive": list(KERNELS)}
    for row, names in rows.items():
        ratios = [spread(found.ratios(names, clock)) for clock in Spent._fields]
        if row not in found.spent:
            table.add_row(row, "", ratios[0], "", ratios[1], "", "", style="bold")
            continue
        wall, cpu = (statistics.median(found.seconds(row, clock)) for clock in Spent._fields)
        table.add_row(
            row,
            f"{work.target_tokens / wall:,.0f}",
            "" if row == OURS else ratios[0],
            f"{work.target_tokens / cpu:,.0f}",
            "" if row == OURS else ratios[1],
            f"{flops / cpu / 1e9:,.0f}",
            f"{found.losses[row]:.3f}" if row in found.losses else "",
        )
    return table


def machine() -> str:
    """What the figures depend on."""
    cpu, flags = platform.processor() or platform.machine(), ""
    information = Path("/proc/cpuinfo")
    if information.exists():
        found = dict(re.findall(r"^(model name|flags)\s*: (.*)$", information.read_text(), re.M))
        cpu = found.get("model name", cpu)
        wanted = ("avx512f", "avx512_bf16", "amx_bf16")
        flags = " ".join(flag for flag in wanted if flag in found.get("flags", "").split())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {cpu} ({flags or 'no AVX-512'}), "
        f"{os.cpu_count()} cores, load average "
        f"{os.getloadavg()[0]:.1f} at the start; nmtdeep {nmtdeep.__version__}, "
        f"torch {torch.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    )


def main() -> None:
    settings = arguments()
    if settings.threads:
        torch.set_num_threads(settings.threads)
    console = Console(width=112)
    console.print(machine(), highlight=False)
    data = DataDirectory.open(settings.data)
    path = settings.data / RECIPE_FILE
    recipe = adapt(path, settings.shape, tokens=settings.tokens, norm=settings.norm)
    types = len(data.pipeline.target.vocabulary)
    work = Work.choose(data.corpus("train"), tokens=settings.tokens, updates=settings.updates)
    few = batching.collate(work.corpus, work.plan[0][:8])
    gap = largest_difference(recipe, types, few, dtype=torch.float32)
    if gap > 1e-4:
        sys.exit(f"the naive loop computes something else: relative difference {gap:.1e}")
    model = build_ours(recipe, types)
    flops = sum(product.flops for product in products(model, work))
    console.print(
        f"{settings.shape}, {recipe.model.encoder.residual.type}, {types:,} types, "
        f"{sum(value.numel() for value in model.parameters()):,} parameters; {len(work.plan)} "
        f"updates a turn: {sum(map(len, work.plan)):,} sentences, {work.target_tokens:,} target "
        f"tokens, {flops / 1e9:,.0f} GFLOP in products with weights, "
        f"{100 - 100 * work.real_tokens / (work.source + work.target):.1f} % padding; loss and "
        f"gradients equal the naive loop's to {gap:.0e} of the largest (fp32, no dropout)",
        highlight=False,
    )
    chosen = ("fp32", "bf16") if settings.precision == "both" else (settings.precision,)
    for precision in chosen:
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        found = measure(recipe, types, work, dtype, settings.repeats)
        console.print(report(found, work, flops, precision))


if __name__ == "__main__":
    main()
