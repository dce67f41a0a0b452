"""Recipes for models that no machine holds: a word at once, by the real commands."""

from __future__ import annotations

from commands.running import Finished
from commands.runs import train

LAYERS = "model.encoder.depth=10000"
WIDE = "model={width: 4096, encoder: {depth: 10000}}"


def _refused(done: Finished, said: str) -> None:
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith("nmtdeep: error: ") and said in line


def test_ten_thousand_layers_are_shown(nmtdeep):
    done = nmtdeep("recipes", "show", "tiny.yaml", LAYERS, "--plain")
    assert done.code == 0
    assert "    depth: 10000\n" in done.out


def test_more_layers_than_ten_thousand_are_refused(nmtdeep):
    done = nmtdeep("recipes", "show", "tiny.yaml", "model.encoder.depth=10001")
    _refused(done, "model.encoder.depth: must be at most 10000, not 10001")


def test_ten_thousand_wide_layers_are_refused_with_what_they_take(nmtdeep, data, tmp_path):
    dry = nmtdeep("train", "tiny.yaml", WIDE, "--data", "data", "--dry-run", "--device", "cpu")
    # 10,000 layers of 4 * 4096^2 + 2 * 4096 * 32 numbers and the rest, 16 bytes each: 10.8 TB
    _refused(dry, " TB for weights, gradients and moments, and this machine has ")
    assert "takes 10.8 TB for" in dry.err
    _refused(train(nmtdeep, tmp_path / "run", WIDE), "lower model.width, a depth or feed_forward")
    assert not (tmp_path / "run").exists()
