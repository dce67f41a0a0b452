"""Checkpoints: plain directories without pickle, replaced as a whole.

`checkpoint_<update>/` holds `model.safetensors`, `optimizer.safetensors`, `state.json`,
`config.yaml` and the text pipeline in `text/`: enough to translate or to resume training. An
averaged checkpoint has no optimizer. `SHA256SUMS` has the checksum of each file, which is compared
before the file is used. `checkpoint_last` and `checkpoint_best` are links; on a disk without links
they are files with the name of a checkpoint, and in a copy of a run they may be copies of it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from nmtdeep import files
from nmtdeep.config.load import read_config
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import dump
from nmtdeep.config.variant import missing_variants, packages_of
from nmtdeep.data.index import INDEX_FILE
from nmtdeep.errors import CheckpointError
from nmtdeep.text.pipeline import TextPipeline

if TYPE_CHECKING:  # torch is imported when a function needs it
    from torch import Tensor

    from nmtdeep.model.transformer import Transformer

FORMAT = "nmtdeep-1"
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
STATE, CONFIG, TEXT = "state.json", "config.yaml", "text"
# In `state.json`: package and version of each variant from outside.
PACKAGES = "packages"
# In `state.json`: what tells one training from another, the same in all of its checkpoints.
TRAINING = "training"
# Kinds, in `state.json`, of checkpoints that are not yet trained: grown, or with the weights of
# another training. They have no optimizer.
GROWN, INITIAL = "grown", "initial"
HINT = "use another checkpoint of the run, or delete this one to resume from an older one"
# Bytes of names and shapes at the start of a safetensors file: those of 2,500 layers and moments.
# Reading them takes 22 times as much memory.
LARGEST_HEADER = 1 << 24
RECORDS = "train.jsonl"  # of a run
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
    optimizer: Mapping[str, Tensor] | None = None,
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
        content = {"format": FORMAT, "text": pipeline.fingerprint(), **state}
        if packages := packages_of(recipe):
            content[PACKAGES] = packages
        (partial / STATE).write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")
        files.write_sums(partial)


def check_free(out: Path, *, overwrite: bool) -> None:
    """Check that `save` may write `out`: it does not exist, or is a checkpoint to overwrite.

    Raises:
        UserError: naming `out` or the file above it.
    """
    files.check_place(out, "--output")
    hint = "choose another --output"
    if out.exists() and not (out / STATE).is_file():
        raise CheckpointError("not a checkpoint, so it is not replaced", where=out, hint=hint)
    if out.exists() and not overwrite:
        raise CheckpointError("exists", where=out, hint=f"add --overwrite, or {hint}")


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file with the permissions of any new file: those that the umask leaves.

    safetensors itself lets only the owner read its files (mode 0600).
    """
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    plain = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    try:
        save_file(plain, path, metadata)
    except SafetensorError as error:  # such as a full disk
        raise OSError(str(error)) from error
    path.chmod(mode)


def point(run: Path, name: str, target: Path) -> None:
    """Make the link `name` of the run directory point to the checkpoint `target`."""
    link = run / name
    if link.is_dir() and not link.is_symlink():
        remove(link)
    with files.replace_file(link) as partial:
        try:
            partial.symlink_to(target.name, target_is_directory=True)
        except OSError:  # a disk without links
            partial.write_text(f"{target.name}\n", encoding="utf-8")


def follow(link: Path) -> Path:
    """The checkpoint that `checkpoint_last` or `checkpoint_best` means if it is not a link.

    Any other path means itself, and so does the copy of a checkpoint that the run does not have.

    Raises:
        UserError: if it leads out of the run, or is damaged.
    """
    if link.name not in (LAST, BEST) or link.is_symlink():
        return link
    if link.is_file():
        name = files.read_limited(link, hint=HINT).decode("utf-8", errors="replace").strip()
    elif (link / STATE).is_file():
        name = f"checkpoint_{_update(link)}"
    else:
        return link
    target = link.parent / name
    if not (re.fullmatch(r"checkpoint_\d{1,20}", name) and (target / STATE).is_file()):
        return link
    files.check_entries(link.parent, [target])
    return target


def saved(run: Path) -> dict[int, Path]:
    """Checkpoints of a run by update number, oldest first; the copy of a link may be the only one.

    Raises:
        UserError: if the state of such a copy cannot be read.
    """
    copies = [path for path in (run / BEST, run / LAST) if (path / STATE).is_file()]
    checkpoints = {_update(path): path for path in copies if not path.is_symlink()}
    checkpoints |= {
        int(match[1]): path
        for path in run.glob("checkpoint_*")
        if (match := re.fullmatch(r"checkpoint_(\d+)", path.name)) and (path / STATE).is_file()
    }
    return dict(sorted(checkpoints.items()))


def is_planned(state: Mapping[str, Any]) -> bool:
    """Whether it was saved as its training's interval says, or at the end."""
    return bool(state.get("planned", True))


def _update(copy: Path) -> int:
    """The number of updates of a checkpoint that does not have it in its name."""
    files.check_entries(copy.parent, [copy])
    update = read_state(copy).get("update")
    if not isinstance(update, int):
        raise CheckpointError("has no number of updates", where=copy / STATE, hint=HINT)
    return update


def locate(path: Path) -> Path:
    """The checkpoint that `path` means: itself, or a run's averaged, best or last checkpoint.

    Raises:
        UserError: if it means nothing of the kind, or a link leads out of the run.
    """
    meant = follow(path)
    if (meant / STATE).is_file():
        files.check_entries(meant, [meant])
        return _target(meant)
    linked = (follow(path / name) for name in (AVERAGE, BEST, LAST))
    for candidate in (*linked, *reversed(saved(path).values())):
        if (candidate / STATE).is_file():
            files.check_entries(path, [candidate])
            return _target(candidate)
    what, hint = f"no finished checkpoint (no {STATE})", "train there first, or name another"
    if not path.exists():
        what, hint = "does not exist", "pass a run directory or a checkpoint inside one"
    elif path.is_file():
        inside = (path.parent / STATE).is_file()
        what, hint = "a file, not a run or a checkpoint", "pass a run directory"
        hint = f"pass the directory that it is in, {path.parent}" if inside else hint
    elif (path / INDEX_FILE).is_file():
        what, hint = "a data directory", "pass the run directory of a model that was trained on it"
    elif (path / "source.spm").is_file():
        what, hint = "a MarianMT model", f"convert it: nmtdeep convert marian {path} -o CHECKPOINT"
    raise CheckpointError(what, where=path, hint=hint)


def _target(link: Path) -> Path:
    """Where a link leads to, as a path that begins as the link does; any other path is itself."""
    return link.parent / link.readlink() if link.is_symlink() else link


def read_state(directory: Path) -> dict[str, Any]:
    """Contents of a checkpoint's `state.json`.

    Raises:
        UserError: if it is missing, damaged or of another program.
    """
    path = directory / STATE
    files.verify(directory, STATE, hint=HINT)
    state = files.read_json(path, hint=HINT)
    if state.get("format") != FORMAT:
        raise CheckpointError(f"not a checkpoint of format {FORMAT}", where=path, hint=HINT)
    if not isinstance(state.get("score"), float | int | None):
        raise CheckpointError("score is not a number", where=path, hint=HINT)
    if not isinstance(packages := state.get(PACKAGES, {}), dict):
        raise CheckpointError(f"{PACKAGES} is not a mapping", where=path, hint=HINT)
    for variant in missing_variants(packages):
        what = f"needs the variant {variant} of the package {packages[variant]}"
        hint = f"pip install {str(packages[variant]).replace(' ', '==')}"
        raise CheckpointError(f"{what}, which is not installed", where=path, hint=hint)
    return state


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a checkpoint's safetensors file, on the CPU.

    Raises:
        UserError: if it is missing, damaged or something else, or has a number that is not finite:
            an activation function may hide a NaN in all but a few answers.
    """
    files.verify(path.parent, path.name, hint=HINT)
    tensors = read_safetensors(path, hint=HINT)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.float().isfinite().all():
            raise CheckpointError(f"{name} has numbers that are not finite", where=path, hint=HINT)
    return tensors


def check_header(path: Path) -> None:
    """Raises ValueError if a safetensors file has a header that would take a lot of memory."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > LARGEST_HEADER:
        raise ValueError(f"a header of {length:,} bytes, more than {LARGEST_HEADER:,}")


def read_safetensors(path: Path, *, hint: str) -> dict[str, Tensor]:
    """Tensors of any safetensors file, on the CPU.

    Raises:
        CheckpointError: if it is damaged or something else.
    """
    from safetensors.torch import load_file

    try:
        check_header(path)
        return load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        what = f"not a whole safetensors file ({error})"
        raise CheckpointError(what, where=path, hint=hint) from error


def load_weights(model: Transformer, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy named tensors, which are from `path`, into the model's parameters.

    Raises:
        CheckpointError: naming what is missing, unknown or of another shape.
    """
    import torch

    from nmtdeep.model.fit import check_shapes

    check_shapes(model, tensors, where=path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


def load_model(path: Path) -> Loaded:
    """Read the model that a run directory or checkpoint holds.

    Raises:
        UserError: if anything of it is missing, damaged or does not fit together.
    """
    from nmtdeep.model.fit import HINT as FIT_HINT
    from nmtdeep.model.fit import build_from

    directory = locate(path)
    files.verify(directory, CONFIG, f"{TEXT}/", hint=HINT)
    state = read_state(directory)  # first, for it names packages that the recipe needs
    recipe = read_config(directory / CONFIG)
    pipeline = TextPipeline.load(directory / TEXT)
    if state.get("text") != pipeline.fingerprint():
        what = "not the text pipeline that this model was trained with"
        raise CheckpointError(what, where=directory / TEXT, hint=HINT)
    file = directory / MODEL
    tensors = read_tensors(file)
    model = build_from(tensors, recipe.model, **pipeline.sizes, where=file, hint=FIT_HINT)
    return Loaded(directory.resolve(), recipe, pipeline, model.eval(), state)


def discard(path: Path) -> None:
    """Delete a half-written or half-deleted file or directory."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove(directory: Path) -> None:
    """Delete a checkpoint; a kill in between leaves nothing that looks like a checkpoint."""
    doomed = directory.with_name(f".{directory.name}.old")
    shutil.rmtree(doomed, ignore_errors=True)
    directory.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
