"""The pictures of a report: those of `plot` and `analyze`, each if it can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from nmtdeep import checkpoint
from nmtdeep.analysis import combination, gradients, lengths, records, schedule, similarity
from nmtdeep.analysis.measurement import Measurement
from nmtdeep.analysis.pictures import render
from nmtdeep.analysis.probe import ProbeText
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError
from nmtdeep.scoring.texts import NamedText
from nmtdeep.tools.report.held_out import HeldOut
from nmtdeep.tools.report.history import RunHistory
from nmtdeep.tools.report.parts import Picture

OVER: tuple[records.Over, ...] = "updates", "hours"
CURVES = (*records.USUAL, "gradient_norm", "lr")
# Gradients are measured on so many tokens of each side, in so many checkpoints.
TOKENS, CHECKPOINTS = 1000, 4


@dataclass
class Album:
    """All pictures, and what could not be drawn; `say` gets a line before each long step."""

    say: Callable[[str], None]
    pictures: list[Picture] = field(default_factory=list)
    omissions: list[str] = field(default_factory=list)

    def add(
        self,
        title: str,
        measure: Callable[[], Measurement],
        signature: str = "",
        *,
        folded: bool = False,
    ) -> None:
        """Draw what `measure` returns; if it raises a UserError, note that."""
        try:
            measurement = measure()
        except UserError as error:
            self.omissions.append(f"{title}: {error}")
            return
        svg = render(measurement.draw, "svg")
        self.pictures.append(Picture(title, svg, signature or measurement.signature, folded))


def of_training(album: Album, histories: Sequence[RunHistory]) -> None:
    """Curves of the records, and the planned learning rates."""
    runs = {run.name: run.path for run in histories if run.records}
    for over in OVER if runs else ():
        album.add(
            f"Training, by {over}",
            partial(records.measure, runs, CURVES, over),
            # The signature of the records names paths of this machine.
            signature="from train.jsonl",
            folded=over == "hours",
        )
    recipes = {run.name: run.recipe for run in histories}
    paths = {run.name: run.path for run in histories}
    album.add("Learning rate, as planned", partial(schedule.measure, recipes, runs=paths))


def of_models(
    album: Album, histories: Sequence[RunHistory], data: DataDirectory | None, device: torch.device
) -> None:
    """Weights of layer combinations; with `data` similarities, and gradients over training."""
    runs = {run.name: run.path for run in histories if run.parameters is not None}
    models = {name: checkpoint.load(path) for name, path in runs.items()}
    for name, loaded in models.items():
        album.add(f"What each layer reads, {name}", partial(combination.measure, name, loaded))
    if data is None or not runs:
        return
    album.say("similarity of layers")
    for loaded in models.values():
        loaded.model.to(device)
    album.add("Similarity of encoder layers", partial(similarity.measure, models, data, "valid"))
    for name, path in runs.items():
        album.say(f"gradients of the checkpoints of {name}")
        title = f"Gradient norms of first and top layer over training, {name}"
        subject = [(name, path)]
        sample = ProbeText(data, TOKENS, device)
        measure = partial(gradients.measure, subject, sample, most=CHECKPOINTS)
        album.add(title, measure)


def of_lengths(album: Album, held_out: HeldOut) -> None:
    """Scores by the length of the source."""
    texts = NamedText(held_out.split, held_out.sources), NamedText("", held_out.references)
    measure = partial(lengths.measure, *texts, held_out.systems, "bleu")
    album.add("BLEU by length", measure)
