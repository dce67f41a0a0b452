"""Growth: grown layer i == old layer map[i], and the rest of the model is carried over."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from nmtdeep.model.build import build, initialize
from nmtdeep.model.growth import carry_over, layer_map
from nmtdeep.testing import SOURCE, TARGET


@pytest.mark.parametrize(
    ("strategy", "old", "new", "expected"),
    [
        ("copy_top_group", 12, 15, [*range(12), 9, 10, 11]),
        ("copy_top_group", 2, 7, [0, 1, 0, 1, 0, 1, 0]),
        ("copy_top_layer", 6, 9, [*range(6), 5, 5, 5]),
        ("interpolate", 4, 6, [0, 1, 2, 2, 3, 3]),
        ("interpolate", 2, 7, [0, 0, 0, 0, 1, 1, 1]),
        ("stack_all", 2, 6, [0, 1, 0, 1, 0, 1]),
        ("random", 2, 4, [0, 1, None, None]),
        ("interpolate", 5, 5, [0, 1, 2, 3, 4]),
    ],
)
def test_layer_maps(strategy, old, new, expected):
    assert layer_map(strategy, old, new) == expected


def test_impossible_growth_is_an_error():
    for strategy, new, said in (
        ("copy_top_group", 5, "cannot grow"),
        ("stack_all", 15, "multiple"),
    ):
        with pytest.raises(ValueError, match=said):
            layer_map(strategy, 6, new)


@pytest.fixture
def grown(tiny_config, tiny_model):
    def grow(depths, strategy, of_decoder=None, **choice):
        old = tiny_model(seed=1, depth=depths[0], **choice)
        described = tiny_config(depth=depths[1], **choice)
        types = {"source_types": 20, "target_types": 20}
        new = build(described, **types).double()
        initialize(new, described, seed=3)
        maps = [layer_map(kind, *depths) for kind in (strategy, of_decoder or strategy)]
        carry_over(old, new, encoder=maps[0], decoder=maps[1])
        return old, new.eval()

    return grow


STRATEGIES = ("copy_top_group", "copy_top_layer", "interpolate", "stack_all", "random")
POST = {"encoder": "post_norm", "decoder": "post_norm"}
AVERAGE = ("average_attention", "cross_attention", "feed_forward")
MODELS: dict[str, dict[str, Any]] = {
    "dlcl": {"combinations": ("dlcl", "dlcl")},
    "dlcl post": {**POST, "combinations": ("dlcl", {"type": "dlcl", "norm": "all"})},
    "sparse": {"combinations": ({"type": "sparse_blocks", "blocks": 2}, "residual")},
    "relative": {"positions": {"type": "relative", "clip": 2}, "bridge": "projection"},
    "transparent": {"sublayers": AVERAGE, "bridge": "transparent"},
    "admin, mhc": {"encoder": "admin", "combinations": ("dlcl", "mhc"), "bridge": "transparent"},
    "streams, queries": {"combinations": ("hyper_connections", "attention_residuals")},
    "denseformer": {"combinations": ({"type": "denseformer", "period": 3}, "denseformer")},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("choice", MODELS.values(), ids=MODELS)
def test_each_layer_equals_its_source(grown, strategy, choice):
    old, new = grown((2, 4), strategy, "interpolate", **choice)
    for side, kind in (("encoder", strategy), ("decoder", "interpolate")):
        before, after = getattr(old, side), getattr(new, side)
        for layer, source in zip(after, layer_map(kind, 2, 4), strict=True):
            if source is None:
                continue
            theirs, ours = dict(before.layers[source].named_parameters()), layer.state_dict()
            assert theirs.keys() == ours.keys()
            assert all(torch.equal(ours[name], value) for name, value in theirs.items())
        for name, value in before.norm.state_dict().items():
            assert torch.equal(after.norm.state_dict()[name], value)
    for part in ("source_embedding", "target_embedding", "output"):
        assert torch.equal(getattr(old, part).weight, getattr(new, part).weight)
    assert new(SOURCE, TARGET).isfinite().all()


def test_layers_that_do_nothing_yet_change_nothing(grown):
    # New ReZero layers start as the identity: the grown model is the old function.
    old, new = grown((2, 5), "random", encoder="rezero", decoder="rezero")
    assert_close(new(SOURCE, TARGET), old(SOURCE, TARGET), rtol=0, atol=1e-12)


def rows(model, side="encoder"):
    return getattr(model, side).combination.weight[..., 0]


def test_grown_dlcl_keeps_its_rows_and_averages_above(grown):
    old, new = grown((2, 4), "copy_top_group", **MODELS["dlcl"])
    for side in ("encoder", "decoder"):
        before, after = rows(old, side), rows(new, side)
        for row in range(3):  # the old top row feeds the first new layer
            assert torch.equal(after[row, : row + 1], before[row, : row + 1])
        for row in (3, 4):
            assert_close(after[row, : row + 1], torch.full((row + 1,), 1 / (row + 1)).double())
        norms = [
            [norm.weight.tolist() for norm in getattr(model, side).combination.norms]
            for model in (old, new)
        ]
        # Norms of y_1, y_2 stay, those of the copies come with them.
        assert norms[1] == [norms[0][0], norms[0][1], norms[0][0], norms[0][1]]


def test_interpolated_dlcl_reads_what_it_read(grown):
    old, new = grown((2, 4), "interpolate", **MODELS["dlcl"])
    before, after = rows(old), rows(new)
    # Layers 0 and 2 are the old ones; y_1 is entry 1 of both, y_2 of the old is entry 3.
    assert torch.equal(after[0, 0], before[0, 0])
    assert after[2, :3].tolist() == [before[1, 0], before[1, 1], 0]
    assert after[3, :4].tolist() == [before[2, 0], before[2, 1], 0, before[2, 2]]
    assert_close(after[1, :2], torch.full((2,), 1 / 2).double())
    assert_close(after[4], torch.full((5,), 1 / 5).double())


def test_grown_sparse_blocks_keep_their_rows(grown):
    old, new = grown((4, 6), "copy_top_group", **MODELS["sparse"])
    before, after = rows(old), rows(new)
    assert before.shape == (3, 3)
    for row in range(3):
        assert torch.equal(after[row, : row + 1], before[row, : row + 1])
    assert_close(after[3], torch.full((4,), 1 / 4).double())
    norms = [[norm.weight.tolist() for norm in m.encoder.combination.norms] for m in (old, new)]
    assert norms[1] == [*norms[0], norms[0][1]]


def test_norms_after_the_sum_are_carried_over_with_their_rows(grown):
    old, new = grown((2, 3), "copy_top_layer", **MODELS["dlcl post"])
    before, after = (
        [norm.bias.tolist() for norm in model.encoder.combination.norms] for model in (old, new)
    )
    # Norms of rows 1 and 2; the new top row takes a copy of the old top's.
    assert after == [*before, before[1]]


def test_copies_share_their_sources_weight_in_transparent_attention(grown):
    old, new = grown((2, 3), "copy_top_layer", **MODELS["transparent"])
    weight = old.bridge.weight
    expected = torch.cat((weight, weight[:, 2:]), dim=1)
    assert torch.equal(new.bridge.weight, torch.cat((expected, expected[1:])))
