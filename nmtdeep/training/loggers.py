"""Receivers of the figures of a training: TensorBoard and Weights & Biases.

The service is set up by its own environment variables: account, server, project, offline mode.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError, printable
from nmtdeep.files import replace_file
from nmtdeep.training.run_directory import LOGGED_AS, TENSORBOARD

PROJECT = "nmtdeep"
# Scalars by name, such as `train/nll` and `validation/valid_bleu`.
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Logger:
    """A receiver of figures, in rank 0.

    Attributes:
        log: receives figures of an update; after resuming, some may come again with equal values.
        close: writes what is left.
        identity: name of the training at a service; empty where the run directory holds it all.
    """

    log: Callable[[Figures, int], object]
    close: Callable[[], object]
    identity: str = ""


# Makes a logger of the run directory, the recipe, and the logger's identity in an earlier part of
# the training, whose curves it then continues; None in the first part.
Kind = Callable[[Path, Recipe, str | None], Logger]


def tensorboard(run: Path, recipe: Recipe, identity: str | None) -> Logger:
    """Event files in the run directory."""
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(run / TENSORBOARD))

    def log(figures: Figures, update: int) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, update)

    return Logger(log, writer.close)


def weights_and_biases(run: Path, recipe: Recipe, identity: str | None) -> Logger:
    """Weights & Biases; its files are in the run directory (WANDB_MODE=offline: only there)."""
    import wandb

    started: Any = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=run.resolve().name,
        id=identity,
        resume="allow",
        dir=run,
        config=recipe.model_dump(mode="json"),
        settings=wandb.Settings(console="off"),
    )

    def log(figures: Figures, update: int) -> None:
        started.log(dict(figures), step=update)  # ignored there if it was sent before

    return Logger(log, started.finish, str(started.id))


KINDS: dict[str, Kind] = {"tensorboard": tensorboard, "wandb": weights_and_biases}


def chosen(recipe: Recipe) -> Mapping[str, Kind]:
    """What makes the recipe's loggers, by name; by default TensorBoard, where it is installed.

    Raises:
        UserError: if the package of one is missing.
    """
    if recipe.training.log_to is None:
        return {"tensorboard": tensorboard} if find_spec("tensorboard") else {}
    for name in recipe.training.log_to:
        if find_spec(name) is None:
            hint = f'pip install "nmtdeep[{name}]", or leave it out'
            raise UserError(f"{name} is not installed", where="--log-to", hint=hint)
    return {name: KINDS[name] for name in recipe.training.log_to}


class Loggers:
    """The loggers of a training. One that fails is left out from then on, with a warning.

    Args:
        run: run directory, which keeps the names of the training at the services.
        kinds: what makes a logger, by name.
        warn: called with a warning.
    """

    def __init__(
        self, run: Path, recipe: Recipe, kinds: Mapping[str, Kind], warn: Callable[[str], object]
    ) -> None:
        self._warn = warn
        self._open: dict[str, Logger] = {}
        known: dict[str, str] = {}
        with suppress(OSError, ValueError, TypeError):
            known = dict(json.loads((run / LOGGED_AS).read_text(encoding="utf-8")))
        for name, kind in kinds.items():
            with self._trying(name):
                self._open[name] = kind(run, recipe, known.get(name))
        named = {name: each.identity for name, each in self._open.items() if each.identity}
        if not named.items() <= known.items():
            with replace_file(run / LOGGED_AS) as path:
                path.write_text(json.dumps(known | named) + "\n", encoding="utf-8")

    def log(self, figures: Figures, update: int) -> None:
        """Pass figures of an update on."""
        for name, logger in list(self._open.items()):
            with self._trying(name):
                logger.log(figures, update)

    def close(self) -> None:
        """Close all of them."""
        for name, logger in list(self._open.items()):
            with self._trying(name):
                logger.close()

    @contextmanager
    def _trying(self, name: str) -> Iterator[None]:
        try:
            with redirect_stdout(sys.stderr):
                yield
        except Exception as error:  # whatever a service raises, the training goes on
            self._open.pop(name, None)
            problem = printable(str(error).partition("\n")[0]) or type(error).__name__
            self._warn(f"warning: {name} failed and gets no more figures: {problem}")
