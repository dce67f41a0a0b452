"""What a model attends to in one sentence pair, as maps over its subwords."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.analysis.findings import Findings, signed
from nmtdeep.analysis.panels import HeatMap, Picture
from nmtdeep.analysis.subject import signature
from nmtdeep.checkpoint import Loaded
from nmtdeep.decoding.settings import settings_of
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import UserError
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.context import Context
from nmtdeep.model.layers.merged_attention import Both, MergedAttention
from nmtdeep.model.transformer import Stack, Transformer
from nmtdeep.tables import table
from nmtdeep.text.pipeline import Form
from nmtdeep.text.vocabulary import EOS, SPECIALS

Of = Literal["cross", "encoder", "decoder"]


class Pair(NamedTuple):
    """A sentence pair as subwords, without ends of sentence."""

    source: Sequence[str]
    target: Sequence[str]


def pair_of(loaded: Loaded, source: str, target: str | None, form: Form | None) -> Pair:
    """The subwords of a sentence and its translation, which the model makes if there is none.

    Args:
        form: what the lines are; None: what the model's recipe says.

    Raises:
        UserError: if the sentence is empty.
    """
    settings = settings_of(loaded)
    form = form or settings.input_form
    words = loaded.pipeline.split_source(source, form)
    if not words:
        raise UserError("--source is empty: give a sentence")
    if target is not None:
        return Pair(words, loaded.pipeline.split_target(target, form))
    translator = Translator([loaded.model], loaded.pipeline, replace(settings, input_form=form))
    (translation,) = translator.translate([source])
    return Pair(words, translation.candidates[0].subwords)


@dataclass(frozen=True)
class Cell:
    """How much of one key a query reads.

    Attributes:
        layer, head: from 1; `mean` over all.
        query: position, from 1; of the decoder, `query_token` is what is predicted there.
        key: position, from 1; of the decoder, the first key is the start.
    """

    of: Of
    layer: str
    head: str
    query: int
    query_token: str
    key: int
    key_token: str
    weight: float


class Map(NamedTuple):
    """One map with its tokens.

    Attributes:
        layer, head: as of a `Cell`.
        weights: of each key, for each query.
    """

    of: Of
    layer: str
    head: str
    queries: Sequence[str]
    keys: Sequence[str]
    weights: Sequence[Sequence[float]]

    def rows(self) -> Iterator[tuple[str, list[float | None]]]:
        """Each query with its weights; None for keys that a decoder has not predicted yet."""
        for row, (query, weights) in enumerate(zip(self.queries, self.weights, strict=True)):
            seen = row + 1 if self.of == "decoder" else len(weights)
            yield query, [*weights[:seen], *[None] * (len(weights) - seen)]


@torch.inference_mode()
def attention_maps(model: Transformer, source: Tensor, target: Tensor, of: Of) -> Tensor:
    """`(layers, heads, queries, keys)` weights of one sentence pair, without dropout.

    Args:
        source: `(source,)` ids, EOS last.
        target: `(target,)` ids that the decoder reads, EOS first.

    Raises:
        UserError: if a layer has no such attention.
    """
    stack = model.encoder if of == "encoder" else model.decoder
    layers = [_attention(stack, number, of) for number in range(len(stack.layers))]
    seen: dict[nn.Module, tuple[Tensor, Context]] = {}

    def note(module: nn.Module, inputs: tuple[Tensor, Context]) -> None:
        seen[module] = inputs[0], inputs[1]

    handles = [place.register_forward_pre_hook(note) for place, _ in layers]
    try:
        model.eval()
        model(source[None], target[None])
    finally:
        for handle in handles:
            handle.remove()
    return torch.cat([attention.weights(*seen[place]) for place, attention in layers])


def _attention(
    stack: Stack, number: int, of: Of
) -> tuple[nn.Module, SelfAttention | CrossAttention]:
    """What is called in a layer, and the attention in it, which reads the same."""
    wanted = CrossAttention if of == "cross" else SelfAttention
    sublayers = [wrapper.sublayer for wrapper in list(stack)[number]]
    for sublayer in sublayers:
        for place in _parts(sublayer):
            found = place.cross if isinstance(place, MergedAttention) else place
            if isinstance(found, wanted):
                return place, found
    names = ", ".join(type(sublayer).__name__ for sublayer in sublayers)
    reason = (
        "a decoder with average or merged attention reads the mean of all positions so far, each "
        "with the weight 1/t: there is no map to look at; choose --of cross or encoder"
        if of == "decoder"
        else "choose another --of"
    )
    raise UserError(f"--of {of}: layer {number + 1} has none ({names}): {reason}")


def _parts(sublayer: nn.Module) -> Iterator[nn.Module]:
    """A sublayer, or those it adds up."""
    yield from (sublayer.first, sublayer.second) if isinstance(sublayer, Both) else (sublayer,)


def find(name: str, loaded: Loaded, pair: Pair, *, of: Of, layer: str, head: str) -> Findings:
    """The maps of one sentence pair.

    Args:
        layer: a number from 1, `mean` or `all`; so is `head`.

    Raises:
        UserError: if there is no such layer, head or attention.
    """
    source = [*loaded.pipeline.source.vocabulary.ids(pair.source), EOS]
    target = [EOS, *loaded.pipeline.target.vocabulary.ids(pair.target)]
    device = loaded.model.output.weight.device
    maps = attention_maps(
        loaded.model,
        torch.tensor(source, device=device),
        torch.tensor(target, device=device),
        of,
    )
    layers = _chosen("--layer", layer, maps.shape[0])
    heads = _chosen("--head", head, maps.shape[1])
    end = SPECIALS[EOS]
    queries = [*(pair.source if of == "encoder" else pair.target), end]
    keys = [end, *pair.target] if of == "decoder" else [*pair.source, end]
    rows: list[Cell] = []
    panels = []
    for one in layers:
        of_layer = maps.mean(dim=0) if one == "mean" else maps[int(one) - 1]
        for two in heads:
            values = (of_layer.mean(dim=0) if two == "mean" else of_layer[int(two) - 1]).tolist()
            shown = Map(of, one, two, queries, keys, values)
            rows += _cells(shown)
            panels.append(_panel(shown))
    made = {"attention": of, "layer": layer, "head": head, **signature({name: loaded})}
    columns = 1 if len(panels) == 1 else max(min(len(heads), 4), 2)
    return Findings(
        rows,
        [table(*_strongest(rows))] if len(panels) == 1 else [],
        lambda: Picture(panels, columns),
        made,
        signed(made),
    )


def _chosen(option: str, wanted: str, count: int) -> list[str]:
    """`mean`, one number or all of them."""
    if wanted == "all":
        return [str(number) for number in range(1, count + 1)]
    if wanted == "mean" or (wanted.isdecimal() and 1 <= int(wanted) <= count):
        return [wanted if wanted == "mean" else str(int(wanted))]
    raise UserError(f"{option} {wanted}: give a number from 1 to {count}, mean or all")


def _cells(shown: Map) -> Iterator[Cell]:
    for row, (query, weights) in enumerate(shown.rows(), start=1):
        for column, (key, weight) in enumerate(zip(shown.keys, weights, strict=True), start=1):
            if weight is not None:
                yield Cell(shown.of, shown.layer, shown.head, row, query, column, key, weight)


def _panel(shown: Map) -> HeatMap:
    names = {
        "cross": ("predicted", "source"),
        "encoder": ("source", "attends to"),
        "decoder": ("predicted", "attends to"),
    }
    which = ", ".join(
        f"all {kind}s (mean)" if number == "mean" else f"{kind} {number}"
        for kind, number in (("layer", shown.layer), ("head", shown.head))
    )
    values = [weights for _, weights in shown.rows()]
    return HeatMap(values, shown.queries, shown.keys, *names[shown.of], title=which)


def _strongest(rows: Sequence[Cell]) -> tuple[dict[str, str], Iterator[tuple[object, ...]]]:
    """For each query the three keys that it reads most."""
    queries = dict.fromkeys((row.query, row.query_token) for row in rows)
    return dict.fromkeys(("position", "token", "reads most"), "left"), (
        (
            query,
            token,
            "  ".join(
                f"{cell.key_token} {cell.weight:.2f}"
                for cell in sorted(
                    (row for row in rows if row.query == query), key=lambda cell: -cell.weight
                )[:3]
            ),
        )
        for query, token in queries
    )
