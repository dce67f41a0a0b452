"""Properties of every combination of slots; equality with torch's own layers."""

import math
from itertools import product
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from model.choices import COMBINATIONS, VARIANTS
from nmtdeep.testing import LENGTHS, SOURCE, TARGET
from nmtdeep.text.vocabulary import PAD

EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(params=COMBINATIONS, ids=range(len(COMBINATIONS)))
def each_model(request, tiny_model):
    """Every two variants of different slots in some model: for the equations of a search."""
    return tiny_model(seed=1, **request.param)


@pytest.fixture(params=VARIANTS.values(), ids=list(VARIANTS))
def model(request, tiny_model):
    """Every variant in some model."""
    return tiny_model(seed=1, **request.param)


def logits(model, source, target):
    return model.output(model(source, target))


def real(x):
    """Each sentence's real target positions."""
    for row, (_, length) in zip(x, LENGTHS, strict=True):
        yield row[:length]


def test_stepwise_equals_parallel_and_a_batch_equals_its_sentences_alone(each_model):
    encoded = each_model.encode(SOURCE)
    parallel = each_model.output(each_model.decode(TARGET, encoded))
    state = each_model.start(encoded)
    stepwise = [each_model.step(TARGET[:, place], state) for place in range(TARGET.shape[1])]
    assert_close([*real(torch.stack(stepwise, dim=1))], [*real(parallel)], **EXACT)
    for number, (source, target) in enumerate(LENGTHS):
        alone = logits(each_model, SOURCE[[number], :source], TARGET[[number], :target])
        assert_close(parallel[number, :target], alone[0], **EXACT)


def test_padding_is_never_read(model):
    before = [*real(model(SOURCE, TARGET))]
    with torch.no_grad():
        for table in {model.source_embedding.weight, model.target_embedding.weight}:
            table[PAD] = 1000 * torch.randn(table.shape[1], dtype=table.dtype)
    assert all(map(torch.equal, before, real(model(SOURCE, TARGET))))
    wider = torch.cat((SOURCE, torch.full((3, 4), PAD)), dim=1)
    assert_close([*real(model(wider, TARGET))], before, **EXACT)


def test_the_future_does_not_leak(model):
    before = logits(model, SOURCE, TARGET)
    has_self_attention = len(model.decoder.layers[0].sublayers) > 1
    for place in range(1, TARGET.shape[1]):
        edited = TARGET.clone()
        edited[:, place] = 11
        after = logits(model, SOURCE, edited)
        assert torch.equal(after[:, :place], before[:, :place])
        changed = (after != before).any(dim=2)
        assert changed[:, place].all()
        assert changed[:, place:].all() == has_self_attention or place == TARGET.shape[1] - 1


def test_every_source_token_is_seen(model):
    before = logits(model, SOURCE, TARGET)
    for place in range(SOURCE.shape[1]):
        edited = SOURCE.clone()
        edited[0, place] = 11
        changed = (logits(model, edited, TARGET) != before).any(dim=2)
        assert changed[0].all()
        assert not changed[1:].any()


def test_every_parameter_has_a_gradient(model):
    with torch.inference_mode():
        logits(model, SOURCE, TARGET)  # must not leave tensors without gradients in a cache
    torch.manual_seed(1)  # a dropped bridge leaves a layer without a memory to tell apart
    log_probs = logits(model.train(), SOURCE, TARGET).log_softmax(dim=2)
    sum(part[:, 3].sum() for part in real(log_probs)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # Noise of a gradient that is zero by nature is far below.
        assert parameter.grad.abs().max() > 1e-9, name


def test_a_forward_pass_does_not_depend_on_earlier_ones(model):
    first = logits(model, SOURCE, TARGET)
    logits(model, SOURCE[:1, :3], TARGET[:1])
    assert torch.equal(logits(model, SOURCE, TARGET), first)
    hook = model.decoder.layers[1].register_forward_hook(Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        model.step(TARGET[:, 0], model.start(model.encode(SOURCE)))
    hook.remove()
    assert torch.equal(logits(model, SOURCE, TARGET), first)


def test_a_decoder_state_follows_hypotheses_and_forgets_sentences(model):
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(3, 20, (6, 5), generator=generator)
    tokens[:, 0] = 1
    sentence = torch.tensor([0, 0, 1, 1, 2, 2])
    state = model.start(model.encode(SOURCE))
    for place in range(2):
        model.step(tokens[:, place], state)
    for rows, stay, places in (
        (torch.tensor([1, 1, 3, 2, 4, 4]), None, (2,)),  # reorder only
        (torch.tensor([1, 0, 5, 4]), torch.tensor([0, 2]), (3,)),  # the middle sentence is done
        (torch.tensor([3, 3]), torch.tensor([1]), (4,)),  # of the two, so is the first
    ):
        state.select(rows, stay)
        tokens, sentence = tokens[rows].clone(), sentence[rows]
        for place in places:
            tokens[:, place] = torch.randint(3, 20, (len(rows),), generator=generator)
            scratch = logits(model, SOURCE[sentence], tokens[:, : place + 1])
            assert_close(model.step(tokens[:, place], state), scratch[:, -1], **EXACT)


# Against torch's own layers


def embedded(ids, table, bias):
    """sqrt(d) E + b + sinusoids, number by number."""
    x = torch.empty(*ids.shape, 8, dtype=torch.float64)
    for sentence, place, i in product(range(len(ids)), range(ids.shape[1]), range(8)):
        angle = place * 10_000 ** (-(i % 4) / 3)
        wave = math.sin(angle) if i < 4 else math.cos(angle)
        x[sentence, place, i] = math.sqrt(8) * table[ids[sentence, place], i] + bias[i] + wave
    return x


def copy(pairs):
    with torch.no_grad():
        for theirs, ours in pairs:
            theirs.copy_(ours)


def same_attention(theirs, ours):
    parts = [ours.qkv] if hasattr(ours, "qkv") else [ours.query, ours.key_value]
    yield theirs.in_proj_weight, torch.cat([part.weight for part in parts])
    yield theirs.in_proj_bias, torch.cat([part.bias for part in parts])
    yield from same_linear(theirs.out_proj, ours.output)


def same_linear(theirs, ours):
    yield theirs.weight, ours.weight
    yield theirs.bias, ours.bias


def same_layer(theirs, ours):
    attention, *cross, feed_forward = (wrapper.sublayer for wrapper in ours.sublayers)
    yield from same_attention(theirs.self_attn, attention)
    for module in cross:
        yield from same_attention(theirs.multihead_attn, module)
    yield from same_linear(theirs.linear1, feed_forward.inner)
    yield from same_linear(theirs.linear2, feed_forward.outer)
    for number, wrapper in enumerate(ours.sublayers, 1):
        yield from same_linear(getattr(theirs, f"norm{number}"), wrapper.norm)


@pytest.mark.parametrize("norm", ["pre_norm", "post_norm"])
def test_the_model_equals_torchs_transformer(norm, tiny_model):
    first = norm == "pre_norm"
    model = tiny_model(seed=3, encoder=norm, decoder=norm, sharing="none", bias=True)
    shared = {"dropout": 0.0, "batch_first": True, "norm_first": first, "dtype": torch.float64}
    tops = [nn.LayerNorm(8, dtype=torch.float64) if first else None for _ in range(2)]
    layers = [
        kind(8, 2, 12, **shared)
        for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    ]
    # In training mode, for in evaluation torch takes a fast path that zeroes padded positions.
    encoder = nn.TransformerEncoder(layers[0], 2, norm=tops[0], enable_nested_tensor=False).train()
    decoder = nn.TransformerDecoder(layers[1], 2, norm=tops[1])
    for theirs, ours in ((encoder, model.encoder), (decoder, model.decoder)):
        for reference, layer in zip(theirs.layers, ours.layers, strict=True):
            copy(same_layer(reference, layer))
        if first:
            copy(same_linear(theirs.norm, ours.norm))
    tables = (model.source_embedding.weight, model.target_embedding.weight)
    bias, padding = model.source_embedding.bias, SOURCE == PAD
    memory = encoder(embedded(SOURCE, tables[0], bias), src_key_padding_mask=padding)
    for ours in model.encode(SOURCE).memories:
        assert_close(ours, memory, **EXACT)
    masks = {"tgt_mask": torch.ones(4, 4).bool().triu(1), "memory_key_padding_mask": padding}
    hidden = decoder(embedded(TARGET, tables[1], bias), memory, **masks)
    assert_close(logits(model, SOURCE, TARGET), hidden @ model.output.weight.T, **EXACT)


def test_bf16_is_close_to_fp32(model):
    model.float()
    full = logits(model, SOURCE, TARGET)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = logits(model, SOURCE, TARGET)
    mixed.float().sum().backward()
    for tensor, reference in zip(real(mixed.float()), real(full), strict=True):
        assert (tensor - reference).norm() < 0.2 * reference.norm()
    assert all(tensor.grad.isfinite().all() for tensor in model.parameters())
