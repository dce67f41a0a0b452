"""Gradients over a training: of the weights that each checkpoint holds, and of the start."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from analysis.by_hand import write_out
from nmtdeep import checkpoint
from nmtdeep.analysis.dynamics import measured
from nmtdeep.analysis.gradients import curves
from nmtdeep.analysis.probe import sentences
from nmtdeep.config.render import dump

CPU = torch.device("cpu")


def by_hand(tiny_run, path: Path) -> list[float]:
    """Encoder, then decoder, of the loss written out and divided by all tokens."""
    model = checkpoint.load(path).model
    batches = sentences(tiny_run.data.corpus("train"), tokens=80, seed=1)
    tokens = sum(batch.target_tokens for batch in batches)
    model.zero_grad()
    for batch in batches:
        write_out("pre_norm", model, batch, tokens=tokens, smoothing=0.1).loss.backward()
    return [
        math.sqrt(sum(float(one.grad.square().sum()) for one in layer.parameters()))
        for stack in (model.encoder, model.decoder)
        for layer in stack
    ]


def test_a_run_is_measured_at_its_start_and_at_every_checkpoint(tiny_run) -> None:
    config = tiny_run.path / "config.yaml"
    config.write_text(dump(tiny_run.recipe), encoding="utf-8")
    how = {"tokens": 80, "device": CPU, "of": "parameters"}
    try:
        start, *later = measured("run", tiny_run.path, tiny_run.data, **how)
    finally:
        config.unlink()
    fresh = curves("run", tiny_run.recipe, tiny_run.data, **how)
    assert start.points == fresh.points
    assert [one.conditions.updates for one in later] == [15, 20]
    for one, path in zip(later, (tiny_run.older, tiny_run.newer), strict=True):
        norms = [point.gradient_norm for point in one.points]
        assert norms == pytest.approx(by_hand(tiny_run, path), rel=1e-3)


def test_a_checkpoint_stands_for_itself(tiny_run) -> None:
    how = {"tokens": 80, "device": CPU, "of": "parameters"}
    (one,) = measured("c", tiny_run.newer, tiny_run.data, **how)
    assert {point.update for point in one.points} == {20}


@pytest.mark.parametrize(("most", "updates"), [(1, [0, 20]), (2, [0, 15, 20]), (5, [0, 15, 20])])
def test_of_many_checkpoints_some_and_the_last_one_are_measured(
    tiny_run, most: int, updates: list[int]
) -> None:
    config = tiny_run.path / "config.yaml"
    config.write_text(dump(tiny_run.recipe), encoding="utf-8")
    how = {"tokens": 80, "device": CPU, "of": "parameters"}
    try:
        found = list(measured("run", tiny_run.path, tiny_run.data, most=most, **how))
    finally:
        config.unlink()
    assert [one.conditions.updates for one in found] == updates
