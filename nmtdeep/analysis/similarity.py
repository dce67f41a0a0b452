"""How alike the outputs of an encoder's layers are, Figures 2, 7 and 8 of Li et al. 2020.

With y_i(l) the output of layer i at position l of a sentence of n positions, y_0 the embedding:

    sim(i, j) = (1/n) sum_l cos(y_i(l), y_j(l)),
    sim_in(i) = (1/n) sum_l cos(y_i(l), mean of y_i over the sentence),

and the mean of each over the sentences of a set. Outputs are raw, before any norm on top of them;
the end of the sentence is a position, as it is to the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nmtdeep.analysis.findings import Findings, signed
from nmtdeep.analysis.panels import Curve, Curves, Picture
from nmtdeep.analysis.subject import check_same_text, signature
from nmtdeep.checkpoint import Loaded
from nmtdeep.data.batching import cut, pad, sort_by_length
from nmtdeep.data.corpus import DataDirectory, MonolingualCorpus
from nmtdeep.errors import UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.tables import table
from nmtdeep.training.regularizer import inter_similarity

BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Similarity:
    """Of one layer of one model.

    Attributes:
        layer: 0 is the embedding.
        to_embedding: sim(layer, 0).
        to_previous: sim(layer, layer - 1); None for the embedding.
        inter: sim_in(layer).
    """

    model: str
    layer: int
    to_embedding: float
    to_previous: float | None
    inter: float


@torch.inference_mode()
def layer_similarities(
    name: str, model: Transformer, corpus: MonolingualCorpus
) -> list[Similarity]:
    """Means over all sentences of a corpus, from the embedding up.

    Args:
        name: what the model is called in the rows.
        model: in evaluation mode.
    """
    lengths, sums = corpus.lengths, torch.zeros(0)
    device = model.output.weight.device
    for indices in cut(lengths, sort_by_length(lengths[None]), BATCH_TOKENS):
        source = pad([np.asarray(corpus[int(one)], np.int64) for one in indices]).to(device)
        outputs = model.encode_deeply(source)[1]
        found = _of_batch(outputs, source != model.pad)
        sums = found if not len(sums) else sums + found
    if not len(sums):
        raise UserError("there are no sentences to look at: choose another --split")
    return [
        Similarity(name, layer, to_embedding, to_previous if layer else None, inter)
        for layer, (to_embedding, to_previous, inter) in enumerate((sums / len(corpus)).tolist())
    ]


def _of_batch(outputs: Sequence[Tensor], mask: Tensor) -> Tensor:
    """`(layers + 1, 3)`: the three figures, summed over the sentences."""
    rows = []
    for layer, output in enumerate(outputs):
        figures = (
            _cosine(output, outputs[0], mask),
            _cosine(output, outputs[max(layer - 1, 0)], mask),
            inter_similarity(output, mask),
        )
        rows.append([float(figure.double().sum()) for figure in figures])
    return torch.tensor(rows, dtype=torch.float64)


def _cosine(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """`(sentences,)` mean over the positions of the cosine between two layers' outputs."""
    cosines = F.cosine_similarity(first, second, dim=2) * mask
    return cosines.sum(dim=1) / mask.sum(dim=1)


def find(models: Mapping[str, Loaded], data: DataDirectory, split: str) -> Findings:
    """The encoders of one or several models over a split of a data directory.

    Raises:
        UserError: if a model was trained on another vocabulary, or there is no such split.
    """
    corpus = data.corpus(split).source
    for loaded in models.values():
        check_same_text(loaded, data)
    rows = [
        row
        for name, loaded in models.items()
        for row in layer_similarities(name, loaded.model, corpus)
    ]
    headings = ("layer", "to embedding", "to layer below", "inter-similarity")
    columns = dict.fromkeys(headings, "right")
    tables = [
        table(columns, (_shown(row) for row in rows if row.model == name), title=name)
        for name in models
    ]
    made = {"sentences": len(corpus), "split": split, **signature(dict(models)), "numbers": "fp32"}
    return Findings(rows, tables, lambda: _picture(rows), made, signed(made))


def _shown(row: Similarity) -> tuple[object, ...]:
    figures = (row.to_embedding, row.to_previous, row.inter)
    return (row.layer, *(None if one is None else f"{one:.3f}" for one in figures))


def _picture(rows: Sequence[Similarity]) -> Picture:
    """(a) to the embedding, (b) to the layer below, from sim(2, 1) on, (c) inter-similarity."""
    panels = []
    for label, figure, first in (
        ("similarity to the embedding", "to_embedding", 0),
        ("similarity to the layer below", "to_previous", 2),
        ("inter-similarity", "inter", 0),
    ):
        curves = []
        for model in dict.fromkeys(row.model for row in rows):
            found = [row for row in rows if row.model == model and row.layer >= first]
            layers = [row.layer for row in found]
            curves.append(Curve(layers, [getattr(row, figure) for row in found], model))
        panels.append(Curves(curves, "encoder layer (0: embedding)", label))
    return Picture(panels)
