"""Checkpoints: exact copies, failed writes change nothing, damage is named."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nmtdeep import checkpoint, files
from nmtdeep.errors import UserError
from nmtdeep.training.optimizer import make_optimizer
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import optimizer_tensors, restore_optimizer
from nmtdeep.training.trainer import Trainer


@pytest.fixture
def copy(tiny_run, tmp_path):
    """A copy of the run, to be damaged."""
    return Path(shutil.copytree(tiny_run.path, tmp_path / "run", symlinks=True))


def save(directory: Path, tiny_run: Any, tensors: dict[str, torch.Tensor], **state: Any) -> None:
    checkpoint.save(
        directory,
        tensors=tensors,
        state=state,
        recipe=tiny_run.recipe,
        pipeline=tiny_run.pipeline,
    )


def bytes_of(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_a_model_comes_back_exactly(tiny_run, tiny_model, tmp_path):
    types = len(tiny_run.pipeline.source.vocabulary)
    model = tiny_model(width=16, types=types, dtype=torch.float32, seed=4)
    save(tmp_path / "one", tiny_run, checkpoint.weights(model), update=7, score=None)
    loaded = checkpoint.load_model(tmp_path / "one")
    assert loaded.path == (tmp_path / "one").resolve()
    assert loaded.recipe == tiny_run.recipe
    assert loaded.pipeline.fingerprint() == tiny_run.pipeline.fingerprint()
    assert (loaded.state["update"], loaded.state["score"]) == (7, None)
    assert not loaded.model.training
    source, target = torch.tensor([[5, 6, 1]]), torch.tensor([[1, 7]])
    assert torch.equal(loaded.model(source, target), model(source, target))
    for name, value in model.named_parameters():
        assert torch.equal(loaded.model.get_parameter(name), value)


def test_weights_that_are_not_finite_are_named(copy, tiny_run):
    file = checkpoint.locate(copy) / checkpoint.MODEL
    tensors = load_file(file)
    name = "decoder.layers.0.sublayers.2.sublayer.inner.bias"
    tensors[name][1] = float("nan")  # before a ReLU, which makes 0 of a NaN on some kernels
    save_file(tensors, file)
    files.write_sums(file.parent)
    with pytest.raises(UserError, match=f"{name} has numbers that are not finite"):
        checkpoint.load_model(copy)
    with pytest.raises(UserError, match=name):
        Trainer(Setup(tiny_run.recipe, tiny_run.data), file.parent)


def test_moments_come_back_exactly_or_not_at_all(tiny_run):
    stored = checkpoint.read_tensors(tiny_run.newer / checkpoint.OPTIMIZER)
    model = checkpoint.load_model(tiny_run.newer).model
    optimizer = make_optimizer(model, tiny_run.recipe.training.optimizer)
    missing = {name: value for name, value in stored.items() if not name.startswith("exp_avg/enc")}
    with pytest.raises(UserError, match="another model"):
        restore_optimizer(model, optimizer, missing)
    name = next(name for name in stored if name.startswith("exp_avg/"))
    with pytest.raises(UserError, match="another model"):
        restore_optimizer(model, optimizer, stored | {name: torch.zeros(3, 5, 7)})
    assert not optimizer.state
    restore_optimizer(model, optimizer, stored)
    again = optimizer_tensors(model, optimizer)
    assert again.keys() == stored.keys()
    assert all(torch.equal(value, stored[name]) for name, value in again.items())
    assert {float(value) for name, value in stored.items() if name.startswith("step/")} == {20.0}


def halve(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def garble(path: Path) -> None:
    path.write_text("{][", encoding="utf-8")


def rename_a_tensor(path: Path) -> None:
    tensors = load_file(path)
    tensors["encoder.extra"] = tensors.pop("encoder.norm.weight")
    save_file(tensors, path)


def another_format(path: Path) -> None:
    path.write_text(json.dumps({"format": "nmtdeep-0"}), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", halve),
        ("model.safetensors", Path.unlink),
        ("model.safetensors", rename_a_tensor),
        ("state.json", garble),
        ("state.json", another_format),
        ("config.yaml", garble),
        ("text/vocabulary.tsv", garble),
        ("text/text.yaml", garble),
    ],
)
def test_a_damaged_file_is_named_though_its_checksum_fits(name, damage, copy):
    path = copy / "checkpoint_20" / name
    damage(path)
    files.write_sums(copy / "checkpoint_20")
    with pytest.raises(UserError) as caught:
        checkpoint.load_model(copy / "checkpoint_20")
    assert str(path) in str(caught.value)


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="needs sha256sum")
def test_sha256sum_agrees(copy):
    command = ["sha256sum", "--check", "--strict", files.SUMS]
    place = copy / "checkpoint_20"
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    listed = [path for path in place.rglob("*") if path.is_file() and path.name != files.SUMS]
    assert sorted(done.stdout.splitlines()) == sorted(
        f"{path.relative_to(place)}: OK" for path in listed
    )


def test_another_vocabulary_is_refused(copy):
    file = copy / "checkpoint_20" / "text" / "vocabulary.tsv"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[5], lines[6] = lines[6], lines[5]
    file.write_text("".join(lines), encoding="utf-8")
    files.write_sums(copy / "checkpoint_20")
    with pytest.raises(UserError, match="checkpoint_20/text: not the text pipeline"):
        checkpoint.load_model(copy)


class Full(dict[str, Any]):
    """Ends like a disk that gets full while this is written."""

    def items(self) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("broken", ["tensors", "optimizer"])
def test_a_failed_write_leaves_what_was_there(broken, copy, tiny_run):
    directory = copy / "checkpoint_20"
    before = bytes_of(copy)
    tensors = load_file(directory / "model.safetensors")
    parts = {
        "tensors": {name: value + 1 for name, value in tensors.items()},
        "optimizer": load_file(directory / "optimizer.safetensors"),
        "state": {"update": 1},
        broken: Full(),
    }
    for target in (directory, copy / "checkpoint_70"):
        with pytest.raises(UserError, match="No space left") as caught:
            checkpoint.save(target, recipe=tiny_run.recipe, pipeline=tiny_run.pipeline, **parts)
        assert str(target) in str(caught.value)
        assert bytes_of(copy) == before
    assert list(checkpoint.saved(copy)) == [15, 20]


class Stuck(type(Path())):  # type: ignore[misc]
    """A path whose new directory cannot be renamed."""

    def rename(self, target: Path) -> Path:
        if self.name.endswith(".partial"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().rename(target)


def test_replacing_swaps_a_whole_directory_or_nothing(tmp_path):
    place = tmp_path / "place"
    for content in ("zeroth", "first"):
        with files.replace_directory(place) as partial:
            assert list(partial.iterdir()) == []
            (partial / content).write_text(content, encoding="utf-8")
        assert bytes_of(tmp_path) == {f"place/{content}": content.encode()}

    with pytest.raises(UserError, match="place"), files.replace_directory(Stuck(place)) as partial:
        (partial / "second").write_text("second", encoding="utf-8")
    assert bytes_of(tmp_path) == {"place/first": b"first"}


def test_a_killed_write_leaves_no_checkpoint_and_is_overwritten(copy, tiny_run):
    left = copy / ".checkpoint_70.partial"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half of it")
    assert list(checkpoint.saved(copy)) == [15, 20]
    save(copy / "checkpoint_70", tiny_run, load_file(copy / "checkpoint_20/model.safetensors"))
    assert list(checkpoint.saved(copy)) == [15, 20, 70]
    assert not left.exists()
    checkpoint.load_model(copy / "checkpoint_70")


def test_a_run_means_its_average_then_its_best_then_its_last(copy):
    assert checkpoint.locate(copy).name == "checkpoint_20"
    checkpoint.point(copy, checkpoint.LAST, copy / "checkpoint_15")
    assert checkpoint.locate(copy).name == "checkpoint_15"
    checkpoint.point(copy, checkpoint.BEST, copy / "checkpoint_20")
    assert checkpoint.locate(copy).name == "checkpoint_20"
    shutil.copytree(copy / "checkpoint_15", copy / checkpoint.AVERAGE)
    assert checkpoint.locate(copy).name == "checkpoint_average"
    assert checkpoint.locate(copy / "checkpoint_15").name == "checkpoint_15"
    assert checkpoint.locate(copy / checkpoint.BEST).name == "checkpoint_20"


def test_describing_a_checkpoint_and_data_needs_no_torch(tiny_run):
    code = (
        "import sys; from pathlib import Path; from nmtdeep.inspection import inspect\n"
        "for path in sys.argv[1:]: assert not inspect(Path(path)).problems\n"
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code, tiny_run.newer, tiny_run.data.path]
    subprocess.run(command, check=True)
