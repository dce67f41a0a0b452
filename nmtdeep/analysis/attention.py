"""Attention maps of one sentence pair over its subwords."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.analysis.measurement import Column, Measurement, grouped, origin
from nmtdeep.analysis.probe import watched
from nmtdeep.checkpoint import Loaded
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.text import Form
from nmtdeep.decoding.searcher import Searcher
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import UserError
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.merged_attention import Both, MergedAttention
from nmtdeep.model.transformer import Stack, Transformer
from nmtdeep.text.vocabulary import EOS, SPECIALS

Of = Literal["cross", "encoder", "decoder"]


class AttentionWeight(NamedTuple):
    """The weight of one key for one query; layers, heads and positions count from 1.

    In the decoder a query's token is the one that is predicted there, and the first key the start.
    """

    of: Of
    layer: Annotated[str, Column("layer", role="panel")]
    head: Annotated[str, Column("head", role="panel")]
    query: Annotated[int, Column("position", role="row")]
    query_token: Annotated[str, Column("query", role="row")]
    key: Annotated[int, Column("position", role="x")]
    key_token: Annotated[str, Column("key", role="x")]
    weight: Annotated[float, Column("weight", role="y")]


class Chosen(NamedTuple):
    """Which maps: `layer` and `head` are a number from 1, `mean` or `all`."""

    of: Of
    layer: str
    head: str


def measure(
    name: str,
    loaded: Loaded,
    source: str,
    target: str | None,
    form: Form | None,
    chosen: Chosen,
) -> Measurement:
    """The maps of one sentence pair, query by query.

    Args:
        target: translation of `source`; None: the model translates.
        form: of both lines; None: what the model's recipe says.
    """
    of, layer, head = chosen
    words, predicted = _subwords(loaded, source, target, form or loaded.recipe.text.input)
    pipeline, device = loaded.pipeline, loaded.model.output.weight.device
    source_ids = torch.tensor([*pipeline.source.vocabulary.ids(words), EOS], device=device)
    target_ids = torch.tensor([EOS, *pipeline.target.vocabulary.ids(predicted)], device=device)
    maps = attention_maps(loaded.model, source_ids, target_ids, of)
    end = SPECIALS[EOS]
    queries = [*(words if of == "encoder" else predicted), end]
    keys = [end, *predicted] if of == "decoder" else [*words, end]
    rows = [
        AttentionWeight(of, number, name_of_head, query, token, key, read, float(weight))
        for number, heads in _chosen("--layer", layer, maps)
        for name_of_head, weights in _chosen("--head", head, heads)
        for query, (token, row) in enumerate(zip(queries, weights, strict=True), start=1)
        for key, (read, weight) in enumerate(zip(keys, row, strict=True), start=1)
        # A decoder does not read what it has not predicted yet.
        if of != "decoder" or key <= query
    ]
    summary = []
    if len(grouped(rows, "layer", "head")) == 1:
        for (query, token), keys_read in grouped(rows, "query", "query_token").items():
            most = sorted(keys_read, key=lambda row: -row.weight)[:3]
            text = "  ".join(f"{row.key_token} {row.weight:.2f}" for row in most)
            summary.append({"position": str(query), "token": token, "reads most": text})
    conditions = {name: origin(loaded), "attention": of, "layer": layer, "head": head}
    return Measurement(f"Attention ({of}), {name}", rows, conditions, summary)


def _subwords(
    loaded: Loaded, source: str, target: str | None, form: Form
) -> tuple[Sequence[str], Sequence[str]]:
    """The subwords of a sentence and of its translation, without ends of sentence."""
    pipeline = loaded.pipeline
    words = pipeline.source.split(source, form)
    if not words:
        raise UserError("the sentence is empty", where="--source", hint="pass a sentence")
    if target is not None:
        return words, pipeline.target.split(target, form)
    options = DecodingOptions(input_is=form).with_recipe(loaded.recipe)
    searcher = Searcher([loaded.model], options, fillers=pipeline.target.vocabulary.fillers)
    (translation,) = Translator(searcher, pipeline).translate([source])
    return words, translation.candidates[0].subwords


@torch.inference_mode()
def attention_maps(model: Transformer, source: Tensor, target: Tensor, of: Of) -> Tensor:
    """`(layers, heads, queries, keys)` weights of one sentence pair, without dropout.

    Args:
        source: `(source,)` ids, EOS last.
        target: `(target,)` ids that the decoder reads, EOS first.
    """
    stack = model.encoder if of == "encoder" else model.decoder
    layers = [_attention(stack, number, of) for number in range(len(stack.layers))]
    model.eval()
    with watched(called for called, _ in layers) as passages:
        model(source[None], target[None])
    maps = [attention.weights(*passages[called].inputs[:2]) for called, attention in layers]
    return torch.cat(maps)


def _attention(
    stack: Stack, number: int, of: Of
) -> tuple[nn.Module, SelfAttention | CrossAttention]:
    """The module that a layer calls, and the attention in it, which reads the same input."""
    kind = CrossAttention if of == "cross" else SelfAttention
    sublayers = [wrapper.sublayer for wrapper in list(stack)[number]]
    parts = [[part.first, part.second] if isinstance(part, Both) else [part] for part in sublayers]
    for called in chain(*parts):
        attention = called.cross if isinstance(called, MergedAttention) else called
        if isinstance(attention, kind):
            return called, attention
    names = ", ".join(type(sublayer).__name__ for sublayer in sublayers)
    what, hint = f"layer {number + 1} has no such attention ({names})", "choose another --of"
    if of == "decoder":
        what += "; average and merged attention read the mean of all positions so far, "
        what += "each with the weight 1/t, and have no map"
        hint = "choose --of cross or encoder"
    raise UserError(what, where=f"--of {of}", hint=hint)


def _chosen(option: str, wanted: str, maps: Tensor) -> list[tuple[str, Tensor]]:
    """The mean over the first dimension, one entry or all of them, each with its name."""
    entries = {str(number): entry for number, entry in enumerate(maps, start=1)}
    if wanted == "all":
        return list(entries.items())
    entries["mean"] = maps.mean(dim=0)
    if wanted not in entries:
        hint = f"pass a number from 1 to {len(maps)}, mean or all"
        raise UserError("the model has fewer", where=f"{option} {wanted}", hint=hint)
    return [(wanted, entries[wanted])]
