"""Files of weights have the permissions that the umask leaves."""

import os

import pytest
import torch

from nmtdeep import checkpoint
from nmtdeep.averaging import average
from nmtdeep.tools.export import to_huggingface


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077], ids="{:03o}".format)
def test_files_of_weights_have_the_permissions_of_any_new_file(umask, tiny_run, tmp_path):
    loaded = checkpoint.load(tiny_run.newer)
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
