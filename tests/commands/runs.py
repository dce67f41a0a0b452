"""The tiny training of these tests, and comparisons of its runs."""

import gzip
import hashlib
import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from commands.running import Commands, Finished, Interrupt
from nmtdeep import checkpoint

PAIRS = {"train": 200, "valid": 20, "test": 12}
RECIPE = """
text:
  bpe: {type: joint, merges: 150}
model:
  width: 16
  encoder: {depth: 2, heads: 2, feed_forward: 32}
  decoder: {depth: 1, heads: 2, feed_forward: 32}
training:
  max_updates: 11
  batches: {tokens_per_update: 800, group_tokens: 400, max_tokens: 400}
  schedule: {lr: 5e-2, warmup_updates: 4}
  validation: {every: 3, bleu: true, best_by: loss}
  checkpoints: {every: 2, keep_last: 3, keep_best: 1, average_last: 3}
  log_every: 1
decoding: {max_length_factor: 0.2, max_length_constant: 4}
"""

DROPOUT_RECIPE = """
extends: tiny.yaml
text:
  bpe: {dropout: 0.1}
training:
  max_updates: 100
  schedule: {lr: 2.0}
  validation: {every: 2, bleu: false, patience: 4}
"""

# Overrides under which the validation loss is the negative log-likelihood.
PLAIN = ("training.label_smoothing=0", "training.precision=fp32")
# Overrides under which rounding stays small.
SMOOTH = (
    "training.optimizer.epsilon=1e-3",
    "training.precision=fp32",
    "training.schedule.lr=5e-3",
    "model.dropout.residual=0.2",
)
# Options of a training that two processes share.
DOUBLE = (*SMOOTH, "--max-tokens", 200)
# Lines that are blank, have another separator within them, or are long.
UNUSUAL = ("", "A\u2028B", " ".join(["long"] * 30))
# Fields that differ between any two runs: measured times and memory.
MEASURED = {
    "hours",
    "tokens_per_second",
    "updates_per_second",
    "wait",
    "memory",
    "seconds",
    "kwh",
    "eta",
}


def prepare(folder: Path) -> None:
    """Fill a folder with text of the shipped corpus, and recipes."""
    corpus = resources.files("nmtdeep") / "demo" / "corpus"
    for language in ("en", "de"):
        packed = (corpus / f"train.{language}.gz").read_bytes()
        lines = gzip.decompress(packed).decode("utf-8").split("\n")
        first = 0
        for split, count in PAIRS.items():
            text = "".join(f"{line}\n" for line in lines[first : first + count])
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
            first += count
    (folder / "tiny.yaml").write_text(RECIPE)
    (folder / "dropout.yaml").write_text(DROPOUT_RECIPE)


def preprocess(nmtdeep: Commands, recipe: str, out: str) -> Path:
    """`nmtdeep preprocess` of that text."""
    done = nmtdeep(
        "preprocess", recipe, "--train", "train", "--valid", "valid", "--test", "test",
        "--out", out, "--workers", 1,
    )  # fmt: skip
    assert done.code == 0, done.err
    return nmtdeep.folder / out


def train(
    nmtdeep: Commands,
    run: str,
    *overrides: object,
    recipe: str = "tiny.yaml",
    data: str = "data",
    interrupt: Interrupt | None = None,
) -> Finished:
    """`nmtdeep train`, on the CPU with one thread."""
    return nmtdeep(*words(run, *overrides, recipe=recipe, data=data), interrupt=interrupt)


def trained(nmtdeep: Commands, run: str, *overrides: object, **how: Any) -> Finished:
    """`train`, which succeeds."""
    done = train(nmtdeep, run, *overrides, **how)
    assert done.code == 0, done.err
    return done


def translated(nmtdeep: Commands, lines: list[str], *options: object) -> list[list[str]]:
    """The translations of each line, best first, that `nmtdeep translate` prints."""
    (nmtdeep.folder / "lines.en").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    done = nmtdeep("translate", "-i", "lines.en", "--format", "tsv", *options)
    assert done.code == 0, done.err
    each: list[list[str]] = [[] for _ in lines]
    for row in done.out.removesuffix("\n").split("\n"):
        number, _, _, _, text = row.split("\t")
        each[int(number) - 1].append(text)
    return each


def words(
    run: str, *overrides: object, recipe: str = "tiny.yaml", data: str = "data"
) -> list[object]:
    """Arguments of `train`; these models learn too little for usual test scores."""
    return [
        "train", recipe, *overrides, "--data", data, "--out", run, "--device", "cpu",
        "--threads", 1, "--final-scores",
    ]  # fmt: skip


def records(run: Path, *kinds: str) -> list[dict[str, Any]]:
    """`train.jsonl`, or its records of some kinds, without what is measured by the clock."""
    rows = map(json.loads, (run / "train.jsonl").read_text().splitlines())
    return [
        {name: value for name, value in row.items() if name not in MEASURED}
        for row in rows
        if not kinds or row["kind"] in kinds
    ]


def contents(run: Path) -> dict[str, Any]:
    """Everything of a run that must not depend on how often it was interrupted."""
    run_contents: dict[str, Any] = {"records": records(run)}
    for path in sorted(run.iterdir()):
        if path.is_symlink():
            run_contents[path.name] = f"-> {path.readlink()}"
        elif path.name.startswith("checkpoint_"):
            run_contents[path.name] = _checkpoint(path)
        elif path.name not in ("train.log", "train.jsonl", "tensorboard"):
            run_contents[path.name] = None if path.is_dir() else path.read_text()
    return run_contents


def _checkpoint(path: Path) -> dict[str, Any]:
    state = json.loads((path / "state.json").read_text())
    tensors = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.glob("*.safetensors"))
    }
    return {name: value for name, value in state.items() if name not in MEASURED} | tensors


def files(directory: Path, *, partial: bool = True) -> dict[str, bytes]:
    """Every file below a directory.

    Args:
        partial: whether files that are being made count too.
    """
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and (partial or ".partial" not in path.parts)
    }


def losses(run: Path) -> dict[int, float]:
    """Training loss by update; each update is there once."""
    rows = records(run, "train")
    by_update = {row["update"]: row["loss"] for row in rows}
    assert len(by_update) == len(rows)
    return by_update


def change(path: Path, *, noise: float = 0.0, **state: object) -> None:
    """Give a checkpoint random weights, or other values in its state."""
    loaded = checkpoint.load_model(path)
    generator = torch.Generator().manual_seed(1)
    tensors = {
        name: noise * torch.randn(tensor.shape, generator=generator) if noise else tensor
        for name, tensor in checkpoint.weights(loaded.model).items()
    }
    old = {name: value for name, value in loaded.state.items() if name not in ("format", "text")}
    checkpoint.save(
        path,
        tensors=tensors,
        optimizer=checkpoint.read_tensors(path / checkpoint.OPTIMIZER),
        state=old | state,
        recipe=loaded.recipe,
        pipeline=loaded.pipeline,
    )


def unfinished(run: Path, copy: Path) -> Path:
    """A copy of a run as it was after its last update, before it chose and scored."""
    shutil.copytree(run, copy, symlinks=True)
    shutil.rmtree(copy / "checkpoint_average", ignore_errors=True)
    (copy / "scores.json").unlink()
    return copy
