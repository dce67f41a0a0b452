"""Gradient norms of layers: equal to autograd.grad of the loss written out; their curves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from analysis.by_hand import write_out
from nmtdeep.analysis.gradients import Of, Point, by_layer, layer_gradients, over_updates
from nmtdeep.analysis.panels import Curve, Curves
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
    Point(recipe, initializer, 0, side, depth, layer, norm * layer)
    for recipe, initializer, norm in (("plain", "glorot gain=1.0", 0.5), ("b.yaml", "lipschitz", 2))
    for side in ("encoder", "decoder")
    for depth in (2, 3)
    for layer in range(1, depth + 1)
]


def test_a_picture_has_a_line_for_each_recipe_depth_and_side() -> None:
    encoder, decoder = by_layer(POINTS).panels
    assert isinstance(encoder, Curves)
    assert encoder.curves == [
        Curve([1, 2], [0.5, 1.0], "glorot", "2 layers"),
        Curve([1, 2, 3], [0.5, 1.0, 1.5], "glorot", "3 layers"),
        Curve([1, 2], [2, 4], "lipschitz", "2 layers"),
        Curve([1, 2, 3], [2, 4, 6], "lipschitz", "3 layers"),
    ]
    assert isinstance(decoder, Curves)
    assert len(decoder.curves) == 4


def test_recipes_with_one_initializer_go_by_their_own_names() -> None:
    points = [replace(point, initializer="glorot gain=1.0") for point in POINTS]
    lines = {curve.line for panel in by_layer(points).panels for curve in panel.curves}
    assert lines == {"plain", "b.yaml"}


def test_over_updates_first_and_top_layers_are_drawn_as_the_model_grows() -> None:
    points = [
        Point("run", "glorot", update, "encoder", depth, layer, update + layer)
        for update, depth in ((0, 1), (5, 3))
        for layer in range(1, depth + 1)
    ]
    encoder, _ = over_updates(points).panels
    assert isinstance(encoder, Curves)
    assert encoder.curves == [
        Curve([0, 5], [1, 6], "run", "first layer"),
        Curve([0, 5], [1, 8], "run", "top layer"),
    ]
