"""Where a part of measure.py runs, programs it starts, and models of the kit's synthetic text."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from contenders import Shape, adapt
from prepare import ROOT, SYNTHETIC

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.index import RECIPE_FILE
from nmtdeep.devices import resolve_device

BASE, BIG, DEEP = "512/2048/8/6+6", "1024/4096/16/6+6", "512/2048/8/30+6"
ROWS = "rows.jsonl"
TINY = ("model.width=32", "training.batches={tokens_per_update: 400, group_tokens: 400}")
Figures, More = dict[str, Any], tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where a part runs.

    Attributes:
        kit: folder of `prepare`.
        out: folder for rows, logs and the run.
        pretend: tiny sizes on the CPU.
        seconds: limit of this part.
        began: `time.time()` when its process started.
    """

    kit: Path
    out: Path
    pretend: bool
    seconds: float = 600.0
    began: float = 0.0

    @property
    def device(self) -> torch.device:
        return resolve_device("cpu" if self.pretend else "cuda")

    @property
    def tiny(self) -> More:
        """Overrides of a recipe."""
        return TINY if self.pretend else ()

    @property
    def since_began(self) -> float:
        """Seconds since the process started, of which imports are a part."""
        return time.time() - self.began

    def rows(self) -> dict[str, Figures]:
        """The newest row of each part that was run."""
        path = self.out / ROWS
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return {row["part"]: row for row in map(json.loads, lines)}

    def recipe(self, shape: str, overrides: More = (), tokens: int = 25_000) -> Recipe:
        """A pre-norm model of the synthetic text, dropout 0.1 everywhere, one batch an update."""
        sizes = Shape.parse(shape)
        if self.pretend:
            sizes, tokens = Shape(32, 64, 2, sizes.encoder // 6, 1), 400
        dropout = "{embedding: 0.1, residual: 0.1, attention: 0.1, activation: 0.1}"
        more = (f"model.dropout={dropout}", "training.clip_norm=1.0", *overrides)
        path = self.kit / SYNTHETIC / RECIPE_FILE
        return adapt(path, sizes, tokens=tokens, norm="pre_norm", overrides=more)


def started(place: Place, *words: str, stderr: int | None = None) -> subprocess.Popen[str]:
    """A program of this checkout that has begun."""
    environment = os.environ | {"NMTDEEP_TEST_DEVICE": place.device.type}
    how = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "stderr": stderr}
    return subprocess.Popen([sys.executable, *words], text=True, **how)


def program(place: Place, *words: str) -> str:
    """What a program of this checkout prints, also to the log."""
    lines = []
    with started(place, *words) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        sys.exit(f"exit code {process.returncode}: {''.join(lines[-1:])}")
    return "".join(lines)
