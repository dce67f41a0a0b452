"""Receivers of the figures of a training: TensorBoard and Weights & Biases.

The service is set up by its own environment variables: account, server, project, offline mode.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.files import replace_file
from nmtdeep.training.run_directory import LOGGED_AS, TENSORBOARD

PROJECT = "nmtdeep"
# Scalars by name, such as `train/nll` and `validation/valid_bleu`.
Figures = Mapping[str, float]


class Logger(NamedTuple):
    """A receiver of figures; after resuming, `log` may get some again, with equal values."""

    log: Callable[[Figures, int], object]
    close: Callable[[], object]


# Makes a logger of the run directory and the recipe.
Kind = Callable[[Path, Recipe], Logger]


def tensorboard(run: Path, recipe: Recipe) -> Logger:
    """Event files in the run directory."""
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(run / TENSORBOARD))

    def log(figures: Figures, update: int) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, update)

    return Logger(log, writer.close)


def weights_and_biases(run: Path, recipe: Recipe) -> Logger:
    """Weights & Biases; its files are in the run directory (WANDB_MODE=offline: only there).

    A resumed training continues the curves of the service's run that `loggers.json` names.
    """
    import wandb

    identity = None
    with suppress(OSError, ValueError, TypeError, KeyError):
        identity = json.loads((run / LOGGED_AS).read_text(encoding="utf-8"))["wandb"]
    started: Any = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=run.resolve().name,
        id=identity,
        resume="allow",
        dir=run,
        config=recipe.model_dump(mode="json"),
        settings=wandb.Settings(console="off"),
    )
    with replace_file(run / LOGGED_AS) as path:
        path.write_text(json.dumps({"wandb": str(started.id)}) + "\n", encoding="utf-8")

    def log(figures: Figures, update: int) -> None:
        started.log(dict(figures), step=update)  # ignored there if it was sent before

    return Logger(log, started.finish)


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
