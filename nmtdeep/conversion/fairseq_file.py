"""A checkpoint of fairseq, read without running anything that is in it."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from nmtdeep.errors import CheckpointError

# Checkpoints also contain averages of times and losses. Their state is read and dropped.
METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter", "MetersDict")
METER_MODULES = ("fairseq.meters", "fairseq.logging.meters")
# Tied weights are stored once, under as many names as there are embeddings.
MAX_EXPANSION = 4
HINT = (
    "load it with fairseq and save only what is needed: "
    'torch.save({"args": vars(state["args"]), "model": state["model"]}, FILE)'
)


@dataclass(frozen=True)
class FairseqCheckpoint:
    """The parts of a checkpoint that a conversion reads.

    Attributes:
        path: of the file.
        settings: of the model, under the names of fairseq's options.
        tensors: weights and buffers by name.
    """

    path: Path
    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read_checkpoint(path: Path) -> FairseqCheckpoint:
    """Read a checkpoint by torch's `weights_only` reader, which builds no objects but tensors.

    The settings of older checkpoints are an `argparse.Namespace`, which it may build. Instead of
    fairseq's meters it builds empty classes of the same names.

    Raises:
        CheckpointError: if it is missing, damaged, not a checkpoint of fairseq, or could run code.
    """
    if not path.is_file():
        hint = "pass a checkpoint of fairseq, such as checkpoint_best.pt"
        raise CheckpointError("no such file", where=path, hint=hint)
    _check_size(path)
    meters = [
        type(name, (), {"__module__": module, "__qualname__": name})
        for module in METER_MODULES
        for name in METERS
    ]
    with safe_globals([argparse.Namespace, *meters]):
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file can make torch raise anything
            what = "not a checkpoint that torch can read without running code"
            if names := _unsafe_names(path):
                what += f": it contains {', '.join(names)}"
            raise CheckpointError(what, where=path, hint=HINT) from error
    tensors = content.get("model") if isinstance(content, dict) else None
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()
    ):
        what = "not a checkpoint of fairseq: no weights under `model`"
        raise CheckpointError(what, where=path, hint=HINT)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if size > MAX_EXPANSION * path.stat().st_size:
        raise CheckpointError("its weights are larger than the file", where=path, hint=HINT)
    settings = _settings(content)
    if settings is None:
        what = "no settings of the model under `args` or `cfg.model`"
        raise CheckpointError(what, where=path, hint=HINT)
    return FairseqCheckpoint(path, settings, tensors)


def _check_size(path: Path) -> None:
    """Raise CheckpointError if unpacking the file would need more bytes than it has.

    The zip archives that torch writes are not compressed, and their entries do not overlap.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return  # an older format or not a checkpoint: torch decides
    if sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise CheckpointError("unpacks to more bytes than it has", where=path, hint=HINT)


def _unsafe_names(path: Path) -> list[str]:
    """Classes and functions in a checkpoint that may run code, as far as they can be listed."""
    try:
        return get_unsafe_globals_in_checkpoint(path)
    except Exception:  # damaged, or of a torch before 1.6
        return []


def _settings(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """The flat settings: `args` of old checkpoints, `cfg.model` (and `cfg.task`) of newer ones.

    The newest versions write `encoder_layers` as `{"encoder": {"layers": 6}}`.
    """
    if args := _mapping(content.get("args")):
        return args
    cfg = _mapping(content.get("cfg"))
    model = _mapping(cfg.get("model"))
    if not model:
        return None
    settings = {**_mapping(cfg.get("task")), **model}
    for side in ("encoder", "decoder"):
        inner = _mapping(settings.pop(side, None))
        settings |= {f"{side}_{name}": value for name, value in inner.items()}
    return settings


def _mapping(value: object) -> dict[str, Any]:
    """A namespace or dictionary with names as keys; anything else is empty."""
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    is_mapping = isinstance(value, dict) and all(isinstance(name, str) for name in value)
    return dict(value) if is_mapping else {}  # type: ignore[call-overload]
