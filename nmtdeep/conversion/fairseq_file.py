"""A checkpoint of fairseq read without running anything that is in it."""

from __future__ import annotations

import argparse
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmtdeep.errors import CheckpointError

# What checkpoints hold besides: averages of times and losses. Their state is read and dropped.
METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter", "MetersDict")
METER_MODULES = ("fairseq.meters", "fairseq.logging.meters")
# Weights that are tied stand in a file once, under as many names as there are embeddings.
MOST_TIMES_CLAIMED = 4
HINT = (
    "load it where fairseq is, and save what is needed alone: "
    'torch.save({"args": vars(state["args"]), "model": state["model"]}, FILE)'
)


@dataclass(frozen=True)
class FairseqCheckpoint:
    """What a conversion reads of a checkpoint.

    Attributes:
        settings: of the model, as fairseq's options are called.
        tensors: weights and buffers by name.
    """

    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read_checkpoint(path: Path) -> FairseqCheckpoint:
    """Read a checkpoint by torch's reader of weights, which builds no objects but tensors.

    The settings of older checkpoints are an `argparse.Namespace`, which it is told to build. In the
    place of fairseq's meters it builds classes of ours that hold nothing but what they are given.

    Raises:
        CheckpointError: if it is missing, broken, no checkpoint of fairseq, or would run code.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file: give a checkpoint of fairseq, such as x.pt")
    _check_size(path)
    meters = [_inert(module, name) for module in METER_MODULES for name in METERS]
    try:
        with torch.serialization.safe_globals([argparse.Namespace, *meters]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's reader raises whatever a broken file makes of it
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        if wanted:
            raise CheckpointError(
                f"{path}: holds an object of {wanted[1]}, which nmtdeep does not build, for "
                f"building it may run code: {HINT}"
            ) from None
        if not _is_torch_file(path):
            raise CheckpointError(
                f"{path} is no checkpoint of torch: give the file that fairseq saved, such as "
                "checkpoint_best.pt"
            ) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"{path}: cannot be read without running code in it ({reason}): {HINT}"
        ) from None
    tensors = content.get("model") if isinstance(content, dict) else None
    if not isinstance(tensors, dict) or not all(map(_is_named, tensors.items())):
        raise CheckpointError(f"{path}: no checkpoint of fairseq (no weights under model): {HINT}")
    claimed = sum(one.numel() * one.element_size() for one in tensors.values())
    if claimed > MOST_TIMES_CLAIMED * path.stat().st_size:
        raise CheckpointError(f"{path}: its weights claim more numbers than it holds: {HINT}")
    settings = _settings(content)
    if settings is None:
        raise CheckpointError(f"{path}: no settings of the model (under args or cfg.model): {HINT}")
    return FairseqCheckpoint(settings, tensors)


def _check_size(path: Path) -> None:
    """Raises CheckpointError if reading the file would give more bytes than it has.

    The zip archives that torch writes are not compressed, and no two entries share bytes.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return  # of older versions, or none: torch says it
    if sum(one.file_size for one in entries) > path.stat().st_size:
        raise CheckpointError(f"{path}: unpacks to more bytes than it has: {HINT}")


def _is_torch_file(path: Path) -> bool:
    """Whether it is a zip archive or, as torch before 1.6 wrote, a pickle of protocol 2 or on."""
    with path.open("rb") as file:
        return file.read(1) == b"\x80" or zipfile.is_zipfile(path)


def _inert(module: str, name: str) -> type:
    """A class under the name of another one that does nothing."""
    return type(name, (), {"__module__": module, "__qualname__": name})


def _is_named(entry: tuple[object, object]) -> bool:
    return isinstance(entry[0], str) and isinstance(entry[1], Tensor)


def _settings(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """The flat settings: `args` of old checkpoints, `cfg.model` (and `cfg.task`) of newer ones."""
    args = _plain(content.get("args"))
    if args is not None:
        return args
    cfg = _plain(content.get("cfg"))
    model = _plain(cfg.get("model")) if cfg else None
    if cfg is None or model is None:
        return None
    return _flat({**(_plain(cfg.get("task")) or {}), **model})


def _plain(value: object) -> dict[str, Any] | None:
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    return value if isinstance(value, dict) and all(map(_is_text, value)) else None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """`{"encoder": {"layers": 6}}`, as the newest versions write it, as `encoder_layers`."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = _plain(value)
        if inner is not None and name in ("encoder", "decoder"):
            found |= {f"{name}_{key}": one for key, one in inner.items()}
        else:
            found[name] = value
    return found
