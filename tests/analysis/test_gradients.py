"""Gradient norms of layers: equal to autograd.grad of the loss written out; their curves."""

import math
from typing import Any

import pytest
import torch

from analysis.by_hand import write_out
from nmtdeep.analysis.gradients import layer_gradients, measure
from nmtdeep.analysis.probe import ProbeText
from nmtdeep.config.render import dump


def sample(run: Any) -> ProbeText:
    return ProbeText(run.data, 80, torch.device("cpu"))


@pytest.mark.parametrize("of", ["parameters", "output"])
def test_norms_equal_those_of_autograd(make_probe, of):
    probe = make_probe(encoder="post_norm", decoder="post_norm")
    tokens = sum(batch.target_tokens for batch in probe.batches)
    runs = [
        write_out("post_norm", probe.model, batch, tokens=tokens, smoothing=0.1)
        for batch in probe.batches
    ]
    expected = []
    for side, stack in probe.stacks():
        for number, layer in enumerate(stack):
            last = (number + 1) * len(layer.sublayers) - 1
            if of == "parameters":
                loss = sum(run.loss for run in runs)
                gradients = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
            else:
                # At padded positions these are zero: nothing real reads them.
                gradients = [
                    torch.autograd.grad(run.loss, getattr(run, side)[last].o, retain_graph=True)[0]
                    for run in runs
                ]
            norm = math.sqrt(sum(float(part.square().sum()) for part in gradients))
            expected.append((side, 2, number + 1, pytest.approx(norm, rel=1e-9)))
    rows = layer_gradients("m", probe, of)
    assert [(row.side, row.depth, row.layer, row.gradient_norm) for row in rows] == expected


def test_a_run_is_measured_at_its_start_and_at_its_checkpoints(tiny_run):
    config = tiny_run.path / "config.yaml"
    config.write_text(dump(tiny_run.recipe), encoding="utf-8")
    try:
        rows = measure([("run", tiny_run.path)], sample(tiny_run)).rows
    finally:
        config.unlink()
    start = measure([("run", tiny_run.recipe)], sample(tiny_run)).rows
    assert [row for row in rows if row.update == 0] == start
    assert list(dict.fromkeys(row.update for row in rows)) == [0, 15, 20]
    for update, path in ((15, tiny_run.older), (20, tiny_run.newer)):
        alone = measure([("run", path)], sample(tiny_run)).rows
        assert [row for row in rows if row.update == update] == alone
