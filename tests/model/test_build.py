"""From config to classes: each choice arrives where it belongs."""

from math import cos, sin

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from nmtdeep.model.build import build
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.residual import PostNorm, PreNorm, Residual
from nmtdeep.model.layers.sublayer import Context


@pytest.mark.parametrize(
    ("sharing", "numbers", "tied"),
    [("all", 20, (0, 0, 0)), ("decoder", 20 + 23, (0, 1, 1)), ("none", 20 + 2 * 23, (0, 1, 2))],
)
def test_sharing_of_tables(sharing, numbers, tied, tiny_model):
    model = tiny_model(sharing=sharing)
    owners = (model.source_embedding, model.target_embedding, model.output)
    weights = [id(owner.weight) for owner in owners]
    first_seen = list(dict.fromkeys(weights))
    assert tuple(map(first_seen.index, weights)) == tied
    count = sum(weight.numel() for weight in model.parameters() if weight.shape[0] in (20, 23))
    assert count == 8 * numbers


def test_the_embedding_bias_is_one_vector_for_both_sides(tiny_model):
    model = tiny_model(sharing="none", bias=True)
    assert model.source_embedding.bias is model.target_embedding.bias is not None
    assert tiny_model().source_embedding.bias is None


def test_a_shared_table_needs_one_vocabulary(tiny_config):
    with pytest.raises(ValueError, match="20 and 21"):
        build(tiny_config(sharing="all"), source_types=20, target_types=21)


def test_each_dropout_rate_is_used_in_its_place(tiny_config):
    described = tiny_config()
    places = {"embedding": 0.1, "residual": 0.2, "attention": 0.3, "activation": 0.4}
    described = type(described).model_validate({**described.model_dump(), "dropout": places})
    model = build(described, source_types=9, target_types=9)
    rates: dict[str, set[float]] = {place: set() for place in places}
    for module in model.modules():
        match module:
            case SelfAttention() | CrossAttention():
                rates["attention"].add(module.dropout)
            case FeedForward():
                rates["activation"].add(module.dropout.p)
            case Residual():
                rates["residual"].add(module.dropout.p)
    for embedding in (model.source_embedding, model.target_embedding):
        rates["embedding"].add(embedding.dropout.p)
    assert rates == {place: {value} for place, value in places.items()}


def test_sizes_heads_norms_and_order_of_each_stack(tiny_config):
    described = tiny_config(norm_epsilon=1e-3)
    small = {"depth": 1, "heads": 4, "feed_forward": 6, "residual": "post_norm"}
    order = ("feed_forward", "cross_attention", "self_attention")
    large = {"depth": 3, "heads": 1, "feed_forward": 10, "sublayers": order}
    changed = {**described.model_dump(), "encoder": small, "decoder": large}
    model = build(type(described).model_validate(changed), source_types=9, target_types=9)
    kinds = [
        [(type(wrapper), type(wrapper.sublayer)) for wrapper in layer.sublayers]
        for layer in (*model.encoder.layers, *model.decoder.layers)
    ]
    assert kinds == [[(PostNorm, SelfAttention), (PostNorm, FeedForward)]] + 3 * [
        [(PreNorm, FeedForward), (PreNorm, CrossAttention), (PreNorm, SelfAttention)]
    ]
    for stack, heads, inner, causal in ((model.encoder, 4, 6, False), (model.decoder, 1, 10, True)):
        for module in stack.modules():
            match module:
                case SelfAttention():
                    assert (module.heads, module.causal) == (heads, causal)
                case CrossAttention():
                    assert module.heads == heads
                case FeedForward():
                    assert module.inner.out_features == inner
    assert isinstance(model.encoder.norm, nn.Identity)
    assert isinstance(model.decoder.norm, nn.LayerNorm)
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) == 2 + 9 + 1
    assert {norm.eps for norm in norms} == {1e-3}


@pytest.mark.parametrize("kind", ["sinusoidal", "relative"])
def test_the_first_token_is_at_the_position_that_the_recipe_says(kind, tiny_model):
    model = tiny_model(positions={"type": kind, "first": 2})
    nothing = torch.zeros(1, 3, 8, dtype=torch.float64)
    for embedding in (model.source_embedding, model.target_embedding):
        rates = [10_000 ** (-wave / 3) for wave in range(4)]
        expected = [[f(p * rate) for f in (sin, cos) for rate in rates] for p in (2, 3, 4)]
        assert_close(embedding.positions(nothing)[0], nothing.new_tensor(expected))


def test_the_models_width_written_in_each_stack_is_the_same_model(tiny_model):
    usual, written = tiny_model(), tiny_model(width=20, widths=(8, 8))
    source = torch.tensor([[5, 6, 7, 1]])
    assert usual.state_dict().keys() == written.state_dict().keys()
    assert_close(written(source, source), usual(source, source), rtol=0, atol=0)


def test_keys_and_values_come_from_a_memory_of_another_width(tiny_model):
    """As torch's attention with `kdim` and `vdim`."""
    model = tiny_model(widths=(12, None), sharing="decoder")
    ours = model.decoder.layers[0].sublayers[1].sublayer
    theirs = nn.MultiheadAttention(8, 2, kdim=12, vdim=12, batch_first=True).double()
    keys, values = ours.key_value.weight.split(8)
    state = {"q_proj_weight": ours.query.weight, "k_proj_weight": keys, "v_proj_weight": values}
    state["in_proj_bias"] = torch.cat((ours.query.bias, ours.key_value.bias))
    outputs = {"out_proj.weight": ours.output.weight, "out_proj.bias": ours.output.bias}
    theirs.load_state_dict(state | outputs)
    x, memory = torch.randn(2, 3, 8).double(), torch.randn(2, 5, 12).double()
    assert_close(ours(x, Context(memory=memory)), theirs(x, memory, memory)[0])
    encoded = model.encode(torch.tensor([[5, 6, 7, 1]]))
    assert [memory.shape[2] for memory in encoded.memories] == [12, 12]
    assert model.source_embedding.scale == 12**0.5
    assert model.target_embedding.scale == 8**0.5
