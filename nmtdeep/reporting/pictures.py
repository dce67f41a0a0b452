"""The pictures of a report: what `plot` and `analyze` draw, each if it can be drawn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nmtdeep import checkpoint
from nmtdeep.analysis import combination, dynamics, gradients, lengths, records, schedule
from nmtdeep.analysis import similarity as similarities
from nmtdeep.analysis.findings import Findings
from nmtdeep.analysis.panels import HeatMap, Picture
from nmtdeep.analysis.picture import draw
from nmtdeep.analysis.subject import read
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError
from nmtdeep.reporting.held_out import HeldOut
from nmtdeep.reporting.history import History
from nmtdeep.reporting.parts import Figure
from nmtdeep.scoring.texts import Text

CURVES = (*records.USUAL, "gradient_norm", "lr")
# Gradients are taken on so many tokens of each side, of so many checkpoints.
TOKENS, CHECKPOINTS = 1000, 4


@dataclass
class Album:
    """Figures as they are drawn, and what cannot be.

    Attributes:
        say: told what takes a while.
    """

    say: Callable[[str], None]
    figures: list[Figure] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, title: str, find: Callable[[], Findings], *, folded: bool = False) -> None:
        """Draw what `find` gives; what it refuses is noted."""
        try:
            found = find()
        except UserError as error:
            self.left_out.append(f"{title}: {error}")
            return
        self.figures.append(Figure(title, svg_of(found.picture()), found.signature, folded))


def svg_of(picture: Picture) -> bytes:
    """The picture as an SVG file; panels of curves and bars stand two and two."""
    if len(picture.panels) > 1 and not any(isinstance(one, HeatMap) for one in picture.panels):
        picture = replace(picture, columns=2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.svg"
        draw(picture, path)
        return path.read_bytes()


def of_training(album: Album, histories: Sequence[History]) -> None:
    """Curves of the records, and the learning rates that the recipes plan."""
    runs = {run.name: run.path for run in histories if run.points}
    if runs:
        album.add("Training, by updates", lambda: _curves(runs, "updates"))
        album.add("Training, by hours", lambda: _curves(runs, "hours"), folded=True)
    recipes = {run.name: run.recipe for run in histories}
    album.add("Learning rate, as planned", lambda: schedule.find(recipes, None))


def of_models(
    album: Album, histories: Sequence[History], data: DataDirectory | None, device: torch.device
) -> None:
    """What the layers read; with `data` their similarities, and their gradients over training."""
    runs = {run.name: run.path for run in histories if run.has_model}
    for name, path in runs.items():
        loaded = checkpoint.load(path)
        title = f"What each layer reads, {name}"
        if combination.combination_weights(loaded.model):
            album.add(title, partial(combination.find, name, loaded, None))
        else:
            album.left_out.append(f"{title}: the layer below it alone; there are no weights")
    if data is None or not runs:
        return
    album.say("similarity of layers")
    album.add("Similarity of encoder layers", lambda: _similarities(runs, data, device))
    for name, path in runs.items():
        album.say(f"gradients of the checkpoints of {name}")
        title = f"Gradient norms of first and top layer over training, {name}"
        album.add(title, partial(_gradients, name, path, data, device))


def of_lengths(album: Album, held_out: HeldOut) -> None:
    """Scores by the length of the source."""
    texts = Text(held_out.split, list(held_out.sources)), Text("", list(held_out.references))
    album.add("BLEU by length", lambda: lengths.find(*texts, held_out.systems, "bleu"))


def _curves(runs: Mapping[str, Path], over: records.Over) -> Findings:
    found = records.find(runs, CURVES, over)
    # Its signature names places on this machine, and the page says which runs they are.
    return replace(found, signature="from train.jsonl")


def _similarities(runs: Mapping[str, Path], data: DataDirectory, device: torch.device) -> Findings:
    return similarities.find(
        {name: read(path, device) for name, path in runs.items()}, data, "valid"
    )


def _gradients(name: str, path: Path, data: DataDirectory, device: torch.device) -> Findings:
    how: dict[str, Any] = {"tokens": TOKENS, "device": device, "most": CHECKPOINTS}
    measured = list(dynamics.measured(name, path, data, of="parameters", **how))
    return gradients.gathered(measured, over=True)
