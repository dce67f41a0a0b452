"""Launches, bytes and least time of an update, counted on a GPU that is not there.

    python benchmarks/gpu/count.py ["base 6+6" ...]

Shapes are computed, numbers are not. A torch that cannot pretend a GPU says so. What a compiler
makes of layers and loss cannot be seen without a GPU; the last column is what it may reach at best:
operators that follow one another are one pass over memory, unless a product, an attention, a copy
or an optimizer is between them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from gpu_guard.pretend import BANDWIDTH, Call, Recorder, pretended
from gpu_guard.torch_tables import missing

from nmtdeep.config.model import Model
from nmtdeep.config.training import Training
from nmtdeep.data.batch import Batch, RankBatches
from nmtdeep.model.build import build
from nmtdeep.packing import Packing
from nmtdeep.training.step import Step

TYPES, LENGTH, TOKENS = 32_000, 28, 25_000
LAUNCH = 5e-6, 10e-6  # seconds
ALONE = ("mm", "mv", "bmm", "attention", "embedding", "index", "copy_", "_foreach", "_fused")
PLACES = ("embedding", "residual", "attention", "activation")


def described(
    *, encoder: int = 6, width: int = 512, combination: str = "residual", **other: Any
) -> Model:
    """A pre-norm model with six decoder layers and heads of width 64."""
    stack = {
        "heads": width // 64,
        "feed_forward": 4 * width,
        "residual": "pre_norm",
        "combination": combination,
    }
    values = {
        "width": width,
        "encoder": {**stack, "depth": encoder},
        "decoder": {**stack, "depth": 6},
        "embeddings": {"sharing": "all"},
        "dropout": dict.fromkeys(PLACES, 0.1),
        **other,
    }
    return Model.model_validate(values)


MODELS: dict[str, dict[str, Any]] = {
    "base 6+6": {},
    "big 6+6": {"width": 1024},
    "plain 30+6": {"encoder": 30},
    "DLCL 30+6": {"encoder": 30, "combination": "dlcl"},
    "relative positions 6+6": {"positions": {"type": "relative", "clip": 8}},
}


def batch(tokens: int, *, packed: bool) -> Batch:
    """Sentences of equal length, as one row or as rows of their own."""
    sentences = tokens // LENGTH
    cells = sentences * LENGTH
    shape = (1, cells) if packed else (sentences, LENGTH)
    ids = [torch.randint(3, 20, shape, device="cuda") for _ in range(3)]
    packing = None
    if packed:
        offsets = torch.arange(0, cells + 1, LENGTH, dtype=torch.int32, device="cuda")
        packing = (Packing(offsets, torch.arange(cells, device="cuda"), LENGTH),) * 2
    return Batch(*ids, cells, padded_tokens=2 * cells, real_tokens=2 * cells, packing=packing)


def count(model: Model, tokens: int, *, batches: int = 1, packed: bool = False) -> Recorder:
    """The second update of so many batches, in bf16 with Adam and clipping."""
    training = Training.model_validate({"clip_norm": 1.0})
    with pretended():
        with torch.device("cuda"):
            network = build(model, source_types=TYPES, target_types=TYPES)
        step = Step(network, training, dtype=torch.bfloat16)
        share = RankBatches.single([batch(tokens, packed=packed) for _ in range(batches)])
        with Recorder() as recorder:
            step.update(share, 1, 1e-4)
            recorder.forget()
            step.update(share, 2, 1e-4)
    return recorder


def fused(calls: Sequence[Call]) -> float:
    """The least seconds if neighbors are one pass: it reads and writes each memory once.

    What no later operator reads is not written.
    """
    last_read = {memory: place for place, call in enumerate(calls) for memory in call.inputs}
    seconds, read, written = 0.0, {}, {}
    for place, call in enumerate(calls):
        if any(part in call.name for part in ALONE):
            kept = [size for memory, size in written.items() if last_read.get(memory, -1) >= place]
            seconds += (sum(read.values()) + sum(kept)) / BANDWIDTH + call.seconds
            read, written = {}, {}
        else:
            read |= {memory: size for memory, size in call.inputs.items() if memory not in written}
            written |= call.outputs
    return seconds + sum(read.values()) / BANDWIDTH


def main() -> None:
    """Print a table, and of each model's row the operators that take most time."""
    if missing():
        sys.exit(missing())
    print("| model, batches | launches | GB | least time, ms | launching, ms | fused, ms |")
    print("|---|---|---|---|---|---|")
    details = []
    for name in sys.argv[1:] or MODELS:
        model = described(**MODELS[name])
        ways = {
            f"six of {TOKENS // 6:,}, padded": count(model, TOKENS // 6, batches=6),
            f"one of {TOKENS:,}, padded": count(model, TOKENS),
        }
        if "relative" not in name:
            ways[f"one of {TOKENS:,}, a row"] = count(model, TOKENS, packed=True)
        for way, found in ways.items():
            launches, moved = found.launches.total(), found.moved.total() / 1e9
            least = 1e3 * sum(call.seconds for call in found.calls)
            low, high = (1e3 * launches * each for each in LAUNCH)
            print(
                f"| {name}, {way} | {launches:,} | {moved:.0f} | {least:.1f} "
                f"| {low:.0f} to {high:.0f} | {1e3 * fused(found.calls):.1f} |",
                flush=True,
            )
        by_operator: Counter[str] = Counter()
        for call in found.calls:
            by_operator[call.name] += call.seconds  # type: ignore[assignment]
        longest = by_operator.most_common(8)
        parts = ", ".join(f"{operator} {1e3 * seconds:.1f}" for operator, seconds in longest)
        details.append(f"{name}: {parts}")
    print("\nms by operator, last line of each model:", *details, sep="\n")


if __name__ == "__main__":
    main()
