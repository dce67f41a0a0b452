"""Files: what a message about a place that cannot be written to names; permissions."""

import errno
import os
from pathlib import Path

import pytest
import torch

from nmtdeep import checkpoint
from nmtdeep.averaging import average
from nmtdeep.errors import UserError
from nmtdeep.files import replace_directory, replace_file
from nmtdeep.tools.export import to_huggingface


@pytest.mark.parametrize("replace", [replace_file, replace_directory])
def test_a_place_that_is_read_only_is_named_by_the_user_s_name(replace, tmp_path, monkeypatch):
    def refuse(place: object, *args: object, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(place))

    for name in ("unlink", "mkdir", "write_text"):  # as on a disk that is mounted read-only
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(UserError) as error, replace(tmp_path / "report.html") as partial:  # type: ignore[operator]
        partial.write_text("x")
    expected = f"{tmp_path / 'report.html'}: cannot be written (Read-only file system)"
    assert str(error.value).startswith(expected)
    assert "choose a place that can be written to" in str(error.value)
    assert ".partial" not in str(error.value)


def test_a_place_in_a_folder_that_does_not_exist(tmp_path):
    place = tmp_path / "none" / "figure.svg"
    with pytest.raises(UserError) as error, replace_file(place) as partial:
        partial.write_text("x", encoding="utf-8")
    expected = "cannot be written, for its folder does not exist: make the folder first"
    assert str(error.value) == f"{place}: {expected}"


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077], ids="{:03o}".format)
def test_files_of_weights_have_the_permissions_of_any_new_file(umask, tiny_run, tmp_path):
    loaded = checkpoint.load_model(tiny_run.newer)
    mean, card = tmp_path / "mean", tmp_path / "card"
    card.mkdir()
    before = os.umask(umask)
    try:
        (tmp_path / "plain").open("w").close()
        checkpoint.save(
            tmp_path / "trained",
            tensors=checkpoint.weights(loaded.model),
            optimizer={"moment": torch.zeros(3)},
            state={},
            recipe=loaded.recipe,
            pipeline=loaded.pipeline,
        )
        average([tiny_run.older, tiny_run.newer], mean)
        to_huggingface.write(card, loaded.model, loaded.recipe, loaded.pipeline)
    finally:
        os.umask(before)
    expected = (tmp_path / "plain").stat().st_mode
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in written} >= {"model.safetensors", "optimizer.safetensors"}
    assert {path: path.stat().st_mode for path in written} == dict.fromkeys(written, expected)
