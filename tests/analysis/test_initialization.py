"""Var(r), the betas and w/sigma: equal to a slow loop over positions and to autograd.grad."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from analysis.by_hand import Step, write_out
from nmtdeep.analysis.initialization import FIGURES, Block, means, residual_blocks
from nmtdeep.analysis.probe import Probe, sentences
from nmtdeep.data.batch import Batch
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.errors import UserError

Figures = dict[str, float | None]

KINDS = ("post_norm", "pre_norm", "normalized", "deep_norm", "no_norm")


def lengths(ids: Tensor) -> list[int]:
    return [sum(id != 0 for id in row) for row in ids.tolist()]


def norm(gradients: list[Tensor], real: list[list[int]]) -> float:
    """Over the real positions of all batches, number by number."""
    total = 0.0
    for gradient, counts in zip(gradients, real, strict=True):
        for row, count in zip(gradient.tolist(), counts, strict=True):
            total += sum(value**2 for position in row[:count] for value in position)
    return math.sqrt(total)


def expected(steps: list[Step], gradients: list[list[Any]], real: list[list[int]]) -> Figures:
    """Figures of one block from its step in every batch.

    Args:
        gradients: of z, r and o for each batch.
        real: lengths of the sentences for each batch.
    """
    variances = []
    for step, counts in zip(steps, real, strict=True):
        for row, count in zip(step.r.tolist(), counts, strict=True):
            for position in row[:count]:
                mean = sum(position) / len(position)
                variances.append(sum((v - mean) ** 2 for v in position) / len(position))
    z, r, o = ([batch[place] for batch in gradients] for place in range(3))
    beta_rc = norm(z, real) / norm(r, real)
    beta_ln = None if o[0] is None else norm(r, real) / norm(o, real)
    gain = steps[0].gain
    return {
        "variance": sum(variances) / len(variances),
        "beta_ln": beta_ln,
        "beta_rc": beta_rc,
        "beta": beta_rc if o[0] is None else norm(z, real) / norm(o, real),
        "w_over_sigma": None
        if gain is None
        else sum(gain.mean().item() / math.sqrt(v) for v in variances) / len(variances),
    }


def by_hand(kind: str, probe: Probe) -> list[Figures]:
    """Every block of the encoder, then of the decoder."""
    tokens = sum(sum(lengths(batch.target_output)) for batch in probe.batches)
    runs = [
        write_out(kind, probe.model, batch, tokens=tokens, smoothing=0.1) for batch in probe.batches
    ]
    figures = []
    for side, ids in (("encoder", "source"), ("decoder", "target_input")):
        real = [lengths(getattr(batch, ids)) for batch in probe.batches]
        for steps in zip(*(getattr(run, side) for run in runs), strict=True):
            gradients = [
                [
                    None if x is None else torch.autograd.grad(run.loss, x, retain_graph=True)[0]
                    for x in (step.z, step.r, step.o)
                ]
                for run, step in zip(runs, steps, strict=True)
            ]
            figures.append(expected(list(steps), gradients, real))
    return figures


def assert_equal(block: Block, figures: Figures) -> None:
    for name in FIGURES:
        figure = figures[name]
        figure = None if figure is None else pytest.approx(figure, rel=1e-9)
        assert getattr(block, name) == figure, name


@pytest.mark.parametrize("kind", KINDS)
def test_figures_equal_those_of_a_plain_loop(make_probe, kind):
    probe = make_probe(encoder=kind, decoder=kind)
    blocks = residual_blocks(probe)
    expected_figures = by_hand(kind, probe)
    assert len(blocks) == len(expected_figures) == 2 * 2 + 2 * 3
    for block, figures in zip(blocks, expected_figures, strict=True):
        assert_equal(block, figures)
    assert (expected_figures[0]["beta_ln"] is None) == (kind in ("pre_norm", "no_norm"))
    assert (expected_figures[0]["w_over_sigma"] is None) == (kind == "no_norm")


def test_dropout_is_on_and_the_same_every_time(make_probe):
    noisy = make_probe(dropout=0.3)
    first = residual_blocks(noisy)
    assert first == residual_blocks(noisy)
    assert first != residual_blocks(make_probe())


def test_the_average_is_over_the_layers_that_have_the_figure():
    def block(layer: int, value: float, beta_ln: float | None) -> Block:
        return Block("encoder", layer, "feed_forward", value, beta_ln, value, value, None)

    assert means([block(1, 1.0, 0.5), block(2, 2.0, None)]) == [
        Block("encoder", None, "feed_forward", 1.5, 0.5, 1.5, 1.5, None)
    ]


def test_sentences_are_as_many_as_the_tokens_need(make_corpus):
    side = make_corpus([[number + 2] * (number % 7) + [1] for number in range(200)])
    pairs = ParallelCorpus(side, side)

    def tokens(batches: list[Batch]) -> int:
        return sum(batch.target_tokens for batch in batches)

    for count in (1, 50, 300):
        assert count <= tokens(sentences(pairs, tokens=count, seed=3)) < count + 7
    everything = sentences(pairs, tokens=10_000, seed=3)
    assert tokens(everything) == side.lengths.sum()
    assert sum(len(batch.source) for batch in everything) == 200
    with pytest.raises(UserError, match="no training sentences"):
        sentences(ParallelCorpus(make_corpus([]), make_corpus([])), tokens=1, seed=1)
