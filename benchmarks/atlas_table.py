"""The rows of the atlas: one training each, in a CSV file to which processes append."""

import csv
import fcntl
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from atlas_methods import Depth

# A model that learns nothing from what it reads ends at the unigram perplexity; a tenth less is
# beyond what chance gives it.
FAILS_FROM = 0.9


class Trial(NamedTuple):
    """One training; it is trained once."""

    plan: str
    method: str
    depth: Depth
    seed: int
    lr: float

    def __str__(self) -> str:
        return f"{self.plan}-{self.method}-{self.depth}-seed{self.seed}-{self.lr:g}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A training and what came of it.

    Attributes:
        seconds: of updates, validations and checkpoints, by the clock on the wall.
        unigram: perplexity of predicting each token by its frequency.
        perplexity: on the validation set, after the last update; inf if the training diverged.
        bleu_valid, bleu_test: nan if nothing was translated.
        slower: seconds of an update over those of the plain pre-norm model of this depth.
        equal_*: the same after `equal_updates`, where the plain model has used up as many seconds.
        curve: update and perplexity of each validation.
        bleu_curve: update and BLEU of each validation that translates, by greedy search.
        device: cpu, or the name of the GPU.
        precision: of the matrix products, bf16 or fp32.
    """

    plan: str
    method: str
    depth: Depth
    seed: int
    lr: float
    updates: int
    target_tokens: int
    seconds: float
    unigram: float
    perplexity: float
    bleu_valid: float = math.nan
    bleu_test: float = math.nan
    slower: float
    equal_updates: int
    equal_perplexity: float
    equal_bleu_valid: float = math.nan
    equal_bleu_test: float = math.nan
    curve: Sequence[tuple[int, float]]
    bleu_curve: Sequence[tuple[int, float]]
    device: str
    precision: str
    date: str
    commit: str
    torch: str

    @property
    def trial(self) -> Trial:
        return Trial(self.plan, self.method, self.depth, self.seed, self.lr)

    @property
    def fails(self) -> bool:
        """Whether the training diverged or stalled at the unigram level."""
        return not self.perplexity < FAILS_FROM * self.unigram

    @classmethod
    def read(cls, cells: dict[str, str]) -> "Row":
        kinds: dict[str, Any] = {
            "depth": Depth.parse,
            "curve": json.loads,
            "bleu_curve": json.loads,
        }
        makers = {str: str, int: int, float: float}
        values = {
            one.name: kinds.get(one.name, makers.get(one.type))(cells[one.name])
            for one in fields(cls)
        }
        return cls(**values)

    def cells(self) -> dict[str, str]:
        shown = {key: number(value) for key, value in asdict(self).items()}
        curves = {name: json.dumps(getattr(self, name)) for name in ("curve", "bleu_curve")}
        return shown | curves | {"depth": str(self.depth)}


def number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def read(path: Path) -> list[Row]:
    """All rows so far; none without a file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [Row.read(cells) for cells in csv.DictReader(file)]


def append(path: Path, row: Row) -> None:
    """Add a row; processes that end together take turns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        table = csv.DictWriter(file, [one.name for one in fields(Row)], lineterminator="\n")
        if not path.stat().st_size:
            table.writeheader()
        table.writerow(row.cells())


def perplexity_at(curve: Sequence[tuple[int, float]], update: int) -> float:
    """The perplexity at an update: its logarithm is interpolated between validations."""
    for (before, low), (after, high) in pairwise(curve):
        if before <= update <= after:
            share = (update - before) / (after - before)
            return math.exp((1 - share) * math.log(low) + share * math.log(high))
    return math.nan


def rows_of(rows: Iterable[Row], **values: object) -> list[Row]:
    """Those with these values, such as `plan="main", method="admin"`."""
    return [row for row in rows if all(getattr(row, k) == v for k, v in values.items())]
