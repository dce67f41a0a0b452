"""The trained model that an analysis looks at, and what its figures are signed with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from nmtdeep.analysis.findings import versions
from nmtdeep.checkpoint import Loaded, load
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError


def read(path: Path, device: torch.device) -> Loaded:
    """The model of a run or checkpoint, in evaluation mode on `device`, fp32."""
    loaded = load(path)
    loaded.model.to(device)
    return loaded


def called(name: str, loaded: Loaded) -> str:
    """What was given, and which checkpoint it led to."""
    return name if Path(name).name == loaded.path.name else f"{name} {loaded.path.name}"


def origin(loaded: Loaded) -> dict[str, Any]:
    """Where the weights come from."""
    state = loaded.state
    made = {"update": state["update"]} if "update" in state else {"kind": state.get("kind")}
    return {"checkpoint": loaded.path.name, **made, "text": loaded.pipeline.fingerprint()[:16]}


def signature(models: dict[str, Loaded]) -> dict[str, Any]:
    """Each model by the name that it was given under, and what computed."""
    return {
        **{
            name: ", ".join(f"{key} {value}" for key, value in origin(loaded).items())
            for name, loaded in models.items()
        },
        **versions(),
    }


def check_same_text(loaded: Loaded, data: DataDirectory) -> None:
    """Raises UserError if the ids of `data` mean other subwords to the model than to `data`."""
    if loaded.pipeline.fingerprint() != data.fingerprint:
        raise UserError(
            f"{loaded.path} was trained on a corpus with another vocabulary than {data.path}: give "
            "the data directory that it was trained on"
        )
