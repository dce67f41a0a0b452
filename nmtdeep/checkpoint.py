"""Checkpoints: plain directories without pickle, written beside and renamed into place.

`checkpoint_<update>/` holds `model.safetensors`, `optimizer.safetensors`, `state.json`,
`config.yaml` and the text pipeline in `text/`: enough to translate or to go on training. An
averaged checkpoint has no optimizer. `SHA256SUMS` has the checksum of each file, which is compared
before the file is used. `checkpoint_last` and `checkpoint_best` are links.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from nmtdeep import files
from nmtdeep.config import Recipe
from nmtdeep.config.load import read_config
from nmtdeep.config.render import dump
from nmtdeep.data.index import INDEX_FILE
from nmtdeep.errors import CheckpointError, DataError, UserError
from nmtdeep.model.fit import build_filled, check_fit
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.pipeline import TextPipeline

FORMAT = "nmtdeep-1"
MODEL, OPTIMIZER, STATE, CONFIG, TEXT = (
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "config.yaml",
    "text",
)
# What `state.json` calls a checkpoint that was grown and not yet trained on.
GROWN = "grown"
LAST, BEST, AVERAGE = "checkpoint_last", "checkpoint_best", "checkpoint_average"


@dataclass(frozen=True)
class Loaded:
    """A model read back, ready to use.

    Attributes:
        path: the checkpoint directory itself.
        state: contents of `state.json`.
    """

    path: Path
    recipe: Recipe
    pipeline: TextPipeline
    model: Transformer
    state: dict[str, Any]


def weights(model: Transformer) -> dict[str, Tensor]:
    """Every parameter once, by name; a table that is shared counts under its first name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save(
    directory: Path,
    *,
    tensors: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor] | None,
    state: Mapping[str, Any],
    recipe: Recipe,
    pipeline: TextPipeline,
) -> None:
    """Write a checkpoint, whole or not at all."""
    with files.replace_directory(directory) as partial:
        save_tensors(partial / MODEL, tensors)
        if optimizer is not None:
            save_tensors(partial / OPTIMIZER, optimizer)
        (partial / CONFIG).write_text(dump(recipe), encoding="utf-8")
        pipeline.save(partial / TEXT)
        (partial / STATE).write_text(
            json.dumps({"format": FORMAT, "text": pipeline.fingerprint(), **state}, indent=1)
            + "\n",
            encoding="utf-8",
        )
        files.write_sums(partial)


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file with the permissions of any new file: those that the umask leaves.

    safetensors itself gives its files to their owner alone (mode 0600).
    """
    path.touch()
    mode = path.stat().st_mode
    plain = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    try:
        save_file(plain, path, metadata)
    except SafetensorError as error:  # such as a full disk
        raise OSError(str(error)) from error
    path.chmod(stat.S_IMODE(mode))


def point(run: Path, name: str, target: Path) -> None:
    """Make the link `name` of the run directory point to the checkpoint `target`."""
    link = run / f".{name}.partial"
    link.unlink(missing_ok=True)
    link.symlink_to(target.name, target_is_directory=True)
    link.replace(run / name)


def saved(run: Path) -> dict[int, Path]:
    """Checkpoints of a run by update number, oldest first."""
    found = {
        int(match[1]): path
        for path in run.glob("checkpoint_*")
        if (match := re.fullmatch(r"checkpoint_(\d+)", path.name)) and (path / STATE).is_file()
    }
    return dict(sorted(found.items()))


def locate(path: Path) -> Path:
    """The checkpoint that `path` means: itself, or a run's averaged, best or last checkpoint.

    Raises:
        CheckpointError: if there is none.
    """
    if not path.exists():
        raise CheckpointError(
            f"{path} does not exist: give a run directory or a checkpoint inside one"
        )
    for candidate in (path, path / AVERAGE, path / BEST, path / LAST):
        if (candidate / STATE).is_file():
            check_entries(path, [candidate])
            return candidate.resolve()
    newest = list(saved(path).values())[-1:] if path.is_dir() else []
    if newest:
        return newest[0].resolve()
    if path.is_file():
        inside = (path.parent / STATE).is_file()
        hint = f"the directory that it is in, {path.parent}" if inside else "a run or a checkpoint"
        raise CheckpointError(f"{path} is a file: give {hint}")
    if (path / INDEX_FILE).is_file():
        raise CheckpointError(
            f"{path} is a data directory: give the run directory of a model that was trained on it"
        )
    raise CheckpointError(
        f"{path} holds no finished checkpoint (no {STATE}): train there first, or name another "
        "directory"
    )


def read_state(directory: Path) -> dict[str, Any]:
    """Contents of a checkpoint's `state.json`.

    Raises:
        CheckpointError: if it is missing, broken, changed or of another program.
    """
    path = directory / STATE
    _verify(directory, STATE)
    try:
        state = files.read_json(path, hint=_CURE)
    except DataError as error:
        raise CheckpointError(str(error)) from error
    if state.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: not a checkpoint of this program's format {FORMAT}: {_CURE}"
        )
    if not isinstance(state.get("score"), float | int | None):
        raise CheckpointError(f"{path}: score is no number: {_CURE}")
    return state


_CURE = "use another checkpoint of the run, or delete this one and train on from an older one"


def check_entries(run: Path, entries: Iterable[Path]) -> None:
    """Check that these of a run's files and folders lead nowhere else; see `integrity`.

    Raises:
        CheckpointError: naming the link, pipe or device.
    """
    try:
        files.check_entries(run, entries, hint="put the file itself there, or delete it")
    except DataError as error:
        raise CheckpointError(str(error)) from error


def _verify(directory: Path, *names: str) -> None:
    check_entries(directory, [directory])
    try:
        files.verify(directory, *names, hint=_CURE)
    except DataError as error:
        raise CheckpointError(str(error)) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, on the CPU.

    Raises:
        CheckpointError: if it is missing, truncated, changed or something else.
    """
    _verify(path.parent, path.name)
    try:
        return load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(
            f"{path}: missing, truncated or foreign ({error}): {_CURE}"
        ) from error


def fill(model: Transformer, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy named tensors into the model's parameters.

    Raises:
        CheckpointError: naming what is missing, left over or of another shape.
    """
    check_fit(model, tensors, where=path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


def check_finite(model: Transformer, path: Path) -> None:
    """Check what `path` has filled: an activation function may hide a NaN from all but answers.

    Raises:
        CheckpointError: naming the first parameter with a number that is not finite.
    """
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise CheckpointError(f"{path}: not all of {name} are finite numbers: {_CURE}")


def load(path: Path) -> Loaded:
    """Read the model that a run directory or checkpoint holds.

    Raises:
        CheckpointError: if anything of it is missing, broken, changed or does not fit together.
    """
    directory = locate(path)
    state = read_state(directory)
    _verify(directory, CONFIG, f"{TEXT}/")
    try:
        recipe = read_config(directory / CONFIG)
        pipeline = TextPipeline.load(directory / TEXT)
    except UserError as error:
        raise CheckpointError(problems=error.problems) from error
    if state.get("text", pipeline.fingerprint()) != pipeline.fingerprint():
        raise CheckpointError(
            f"{directory / TEXT}: not the text pipeline that this model was trained with: {_CURE}"
        )
    file = directory / MODEL
    model = build_filled(
        read_tensors(file),
        recipe.model,
        source_types=len(pipeline.source.vocabulary),
        target_types=len(pipeline.target.vocabulary),
        where=file,
    )
    check_finite(model, file)
    return Loaded(directory, recipe, pipeline, model.eval(), state)


def discard(path: Path) -> None:
    """Delete what a kill left half written or half deleted."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove(directory: Path) -> None:
    """Delete a checkpoint so that a kill on the way leaves nothing that looks like one."""
    doomed = directory.with_name(f".{directory.name}.old")
    shutil.rmtree(doomed, ignore_errors=True)
    directory.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
