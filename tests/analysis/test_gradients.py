"""Gradient norms of layers: equal to autograd.grad of the loss written out; the files."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from analysis.by_hand import write_out
from nmtdeep.analysis.gradients import Of, Point, layer_gradients
from nmtdeep.analysis.picture import draw
from nmtdeep.analysis.probe import Probe


@pytest.mark.parametrize("of", ["parameters", "output"])
def test_norms_equal_those_of_autograd(make_probe: Callable[..., Probe], of: Of) -> None:
    probe = make_probe(encoder="post_norm", decoder="post_norm")
    tokens = sum(batch.target_tokens for batch in probe.batches)
    runs = [
        write_out("post_norm", probe.model, batch, tokens=tokens, smoothing=0.1)
        for batch in probe.batches
    ]
    wanted = []
    for side, stack in probe.stacks():
        for number, layer in enumerate(stack):
            last = (number + 1) * len(layer.sublayers) - 1
            if of == "parameters":
                loss = sum(run.loss for run in runs)
                found = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
            else:
                # At padded positions these are zero: nothing real reads them.
                found = [
                    torch.autograd.grad(run.loss, getattr(run, side)[last].o, retain_graph=True)[0]
                    for run in runs
                ]
            norm = math.sqrt(sum(float(one.square().sum()) for one in found))
            wanted.append((side, 2, number + 1, pytest.approx(norm, rel=1e-9)))
    assert [tuple(vars(one).values()) for one in layer_gradients(probe, of)] == wanted


POINTS = [
    Point(recipe, initialiser, side, depth, layer, norm * layer)
    for recipe, initialiser, norm in (("plain", "glorot gain=1.0", 0.5), ("b.yaml", "lipschitz", 2))
    for side in ("encoder", "decoder")
    for depth in (2, 3)
    for layer in range(1, depth + 1)
]


def test_the_csv_has_a_row_for_each_point(tmp_path: Path) -> None:
    write_csv(POINTS, tmp_path / "g.csv")
    lines = (tmp_path / "g.csv").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [
        "recipe,initialiser,side,depth,layer,gradient_norm",
        "plain,glorot gain=1.0,encoder,2,1,0.5",
    ]
    assert len(lines) == 1 + len(POINTS)


def test_equal_points_draw_an_equal_picture(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg", "c.png"):
        draw(POINTS, tmp_path / name)
    svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert svg == (tmp_path / "b.svg").read_text(encoding="utf-8")
    for word in ("glorot", "lipschitz", "2 layers", "3 layers", "gradient norm, decoder"):
        assert word in svg
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
