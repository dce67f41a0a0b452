"""Files of `torch.save`, read without running anything that is in them."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from nmtdeep.errors import CheckpointError

# Tied weights are stored once, under as many names as there are embeddings.
MAX_EXPANSION = 4


def read_pickle(path: Path, *, hint: str, classes: Sequence[type] = ()) -> Any:
    """The content of a file, by torch's `weights_only` reader.

    It builds no objects but tensors, plain values, and instances of `classes`.

    Raises:
        CheckpointError: if it is damaged or could run code.
    """
    _check_size(path, hint)
    with safe_globals(list(classes)), warnings.catch_warnings(action="ignore"):
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file can make torch raise anything
            what = "not a checkpoint that torch can read without running code"
            if names := _unsafe_names(path):
                what += f": it contains {', '.join(names)}"
            raise CheckpointError(what, where=path, hint=hint) from error


def checked_weights(tensors: object, path: Path, *, hint: str) -> dict[str, Tensor]:
    """Tensors by name, out of a file.

    Raises:
        CheckpointError: if `tensors` is something else, or they are much larger than the file.
    """
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()
    ):
        raise CheckpointError("not the weights of a model", where=path, hint=hint)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if size > MAX_EXPANSION * path.stat().st_size:
        raise CheckpointError("its weights are larger than the file", where=path, hint=hint)
    return tensors


def _check_size(path: Path, hint: str) -> None:
    """Raise CheckpointError if unpacking the file would need more bytes than it has.

    The zip archives that torch writes are not compressed, and their entries do not overlap.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return  # an older format or not a checkpoint: torch decides
    if sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise CheckpointError("unpacks to more bytes than it has", where=path, hint=hint)


def _unsafe_names(path: Path) -> list[str]:
    """Classes and functions in a checkpoint that may run code, as far as they can be listed."""
    try:
        return get_unsafe_globals_in_checkpoint(path)
    except Exception:  # damaged, or of a torch before 1.6
        return []
