"""Short trainings of the tiny run's recipe on its data, and what they leave."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmtdeep.config.recipe import Recipe
from nmtdeep.training.loop import train
from nmtdeep.training.setup import TrainingJob
from training.in_ranks import launched


def recipe_of(tiny_run: Any, **training: Any) -> Recipe:
    """The tiny recipe with these keys of its section training."""
    return Recipe.model_validate(tiny_run.recipe.model_dump() | {"training": training})


def trained(
    tiny_run: Any,
    out: Path,
    *,
    code: int = 0,
    processes: int = 1,
    clock: Any = None,
    **training: Any,
) -> Path:
    """`out`, after a training with these keys that ends with `code`."""
    job = TrainingJob(recipe_of(tiny_run, **training), tiny_run.data.path, out, "cpu")
    begin = partial(train, job, quiet=True, **({} if clock is None else {"clock": clock}))
    assert (begin() if processes == 1 else launched(processes, begin)) == code
    return out


def records(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    """The lines of train.jsonl of one kind."""
    lines = (run / "train.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def values(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the parameters."""
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def equal(some: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    """Whether the same names have the same bits."""
    assert some.keys() == others.keys()
    return all(torch.equal(value, others[name]) for name, value in some.items())
