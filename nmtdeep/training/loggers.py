"""Receivers of the figures of a training: TensorBoard, and services that track experiments.

The services are set up by their own environment variables: account, server, project, offline mode.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError, printable
from nmtdeep.files import replace_file
from nmtdeep.training.run_directory import LOGGED_AS, TENSORBOARD

PROJECT = "nmtdeep"
# Scalars by name, such as `train/nll` and `validation/valid_bleu`.
Figures = Mapping[str, float]


class Logger(Protocol):
    """A receiver of figures, in rank 0.

    It is made of the run directory, the recipe, and its own `identity` in an earlier part of the
    training, whose curves it then continues; None in the first part.

    Attributes:
        identity: name of the training at the service; empty where the run directory holds it all.
    """

    identity: str

    def log(self, figures: Figures, update: int) -> None:
        """Receive figures of an update; after resuming, some may come again with equal values."""

    def close(self) -> None:
        """Write what is left."""


class TensorBoard:
    """Event files in the run directory."""

    def __init__(self, run: Path, recipe: Recipe, identity: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.identity = ""
        self._writer: Any = SummaryWriter(str(run / TENSORBOARD))

    def log(self, figures: Figures, update: int) -> None:
        """Write events."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, update)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class WeightsAndBiases:
    """Weights & Biases; its files are in the run directory (WANDB_MODE=offline: only there)."""

    def __init__(self, run: Path, recipe: Recipe, identity: str | None) -> None:
        import wandb

        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.resolve().name,
            id=identity,
            resume="allow",
            dir=run,
            config=recipe.model_dump(mode="json"),
            settings=wandb.Settings(console="off"),
        )
        self.identity = str(self._run.id)

    def log(self, figures: Figures, update: int) -> None:
        """Send figures; updates that were sent before are ignored there."""
        self._run.log(dict(figures), step=update)

    def close(self) -> None:
        """Wait until all is sent."""
        self._run.finish()


class MLflow:
    """MLflow; MLFLOW_TRACKING_URI names the server, or a database or folder of this machine."""

    def __init__(self, run: Path, recipe: Recipe, identity: str | None) -> None:
        import mlflow

        self._mlflow: Any = mlflow
        mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        started = mlflow.start_run(run_id=identity, run_name=run.resolve().name)
        self.identity = str(started.info.run_id)
        if identity is None:  # parameters of a run cannot change
            mlflow.log_dict(recipe.model_dump(mode="json"), "config.yaml")

    def log(self, figures: Figures, update: int) -> None:
        """Send figures."""
        self._mlflow.log_metrics(dict(figures), step=update)

    def close(self) -> None:
        """Mark the run as finished."""
        self._mlflow.end_run()


class Trackio:
    """trackio; in its database on this machine, or in TRACKIO_SPACE_ID."""

    def __init__(self, run: Path, recipe: Recipe, identity: str | None) -> None:
        import trackio

        self.identity = identity or f"{run.resolve().name}-{secrets.token_hex(4)}"
        with redirect_stdout(sys.stderr):
            self._run: Any = trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", PROJECT),
                name=self.identity,
                resume="allow",
                config=recipe.model_dump(mode="json"),
                embed=False,
            )

    def log(self, figures: Figures, update: int) -> None:
        """Store figures."""
        self._run.log(dict(figures), step=update)

    def close(self) -> None:
        """Wait until all is stored."""
        with redirect_stdout(sys.stderr):
            self._run.finish()


Kind = Callable[[Path, Recipe, str | None], Logger]
KINDS: dict[str, Kind] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
    "trackio": Trackio,
}


def chosen(recipe: Recipe) -> Mapping[str, Kind]:
    """What makes the recipe's loggers, by name; by default TensorBoard, where it is installed.

    Raises:
        UserError: if the package of one is missing.
    """
    if recipe.training.log_to is None:
        return {"tensorboard": TensorBoard} if find_spec("tensorboard") else {}
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
        self,
        run: Path,
        recipe: Recipe,
        kinds: Mapping[str, Kind],
        warn: Callable[[str], object],
    ) -> None:
        self._warn = warn
        self._open: dict[str, Logger] = {}
        known: dict[str, str] = {}
        with suppress(OSError, ValueError, TypeError):
            known = dict(json.loads((run / LOGGED_AS).read_text(encoding="utf-8")))
        for name, kind in kinds.items():

            def start(name: str = name, kind: Kind = kind) -> None:
                self._open[name] = kind(run, recipe, known.get(name))

            self._try(name, start)
        named = {name: each.identity for name, each in self._open.items() if each.identity}
        if not named.items() <= known.items():
            with replace_file(run / LOGGED_AS) as path:
                path.write_text(json.dumps(known | named) + "\n", encoding="utf-8")

    def log(self, figures: Figures, update: int) -> None:
        """Pass figures of an update on."""
        for name, logger in list(self._open.items()):
            self._try(name, partial(logger.log, figures, update))

    def close(self) -> None:
        """Close all of them."""
        for name, logger in list(self._open.items()):
            self._try(name, logger.close)

    def _try(self, name: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # whatever a service raises, the training goes on
            self._open.pop(name, None)
            problem = printable(str(error).partition("\n")[0]) or type(error).__name__
            self._warn(f"warning: {name} failed and gets no more figures: {problem}")
