"""A checkpoint of fairseq, read without running anything that is in it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nmtdeep.conversion.pickles import checked_weights, read_pickle
from nmtdeep.errors import CheckpointError

# Checkpoints also contain averages of times and losses. Their state is read and dropped.
METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter", "MetersDict")
METER_MODULES = ("fairseq.meters", "fairseq.logging.meters")
HINT = (
    "load it with fairseq and save only what is needed: "
    'torch.save({"args": vars(state["args"]), "model": state["model"]}, FILE)'
)


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a checkpoint by torch's `weights_only` reader, which builds no objects but tensors.

    The settings of older checkpoints are an `argparse.Namespace`, which it may build. Instead of
    fairseq's meters it builds empty classes of the same names.

    Returns:
        Settings of the model, under the names of fairseq's options; weights and buffers by name.

    Raises:
        CheckpointError: if it is missing, damaged, not a checkpoint of fairseq, or could run code.
    """
    if not path.is_file():
        hint = "pass a checkpoint of fairseq, such as checkpoint_best.pt"
        raise CheckpointError("no such file", where=path, hint=hint)
    meters = [
        type(name, (), {"__module__": module, "__qualname__": name})
        for module in METER_MODULES
        for name in METERS
    ]
    content = read_pickle(path, hint=HINT, classes=[argparse.Namespace, *meters])
    if not isinstance(content, dict) or "model" not in content:
        what = "not a checkpoint of fairseq: no weights under `model`"
        raise CheckpointError(what, where=path, hint=HINT)
    tensors = checked_weights(content["model"], path, hint=HINT)
    settings = _settings(content)
    if settings is None:
        what = "no settings of the model under `args` or `cfg.model`"
        raise CheckpointError(what, where=path, hint=HINT)
    return settings, tensors


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
