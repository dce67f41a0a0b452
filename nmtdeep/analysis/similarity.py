"""Similarity of the outputs of an encoder's layers, Figures 2, 7 and 8 of Li et al. 2020.

With y_i(l) the output of layer i at position l of a sentence of n positions, y_0 the embedding:

    sim(i, j) = (1/n) sum_l cos(y_i(l), y_j(l)),
    sim_in(i) = (1/n) sum_l cos(y_i(l), mean of y_i over the sentence),

and the mean of each over the sentences of a set. Outputs are raw, before any norm on top of them;
the end of the sentence is a position, as it is to the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import torch

from nmtdeep.analysis.measurement import Column, Measurement, check_same_text, origin
from nmtdeep.checkpoint import Loaded
from nmtdeep.data.batch import pad_batch
from nmtdeep.data.batching import cut_by_tokens, sort_by_length
from nmtdeep.data.corpus import DataDirectory, MonolingualCorpus
from nmtdeep.errors import UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.loss import inter_similarity, mean_cosine

BATCH_TOKENS = 4096


class LayerSimilarity(NamedTuple):
    """sim(layer, 0), sim(layer, layer - 1) and sim_in(layer); layer 0 is the embedding."""

    model: Annotated[str, Column("model", role="curve")]
    layer: Annotated[int, Column("layer", role="x")]
    to_embedding: Annotated[float, Column("to embedding", "cosine", role="y")]
    to_previous: Annotated[float | None, Column("to layer below", "cosine", role="y")]
    inter: Annotated[float, Column("inter-similarity", "cosine", role="y")]


def measure(models: Mapping[str, Loaded], data: DataDirectory, split: str) -> Measurement:
    """The encoders of models over a split of a data directory."""
    corpus = data.corpus(split).source
    for loaded in models.values():
        check_same_text(loaded, data)
    rows = [
        row
        for name, loaded in models.items()
        for row in layer_similarities(name, loaded.model, corpus)
    ]
    origins = {name: origin(loaded) for name, loaded in models.items()}
    text = {"sentences": len(corpus), "split": split, "numbers": "fp32"}
    title = "Similarity of encoder layers; layer 0 is the embedding"
    return Measurement(title, rows, origins | text, note="layer 0 is the embedding")


@torch.inference_mode()
def layer_similarities(
    name: str, model: Transformer, corpus: MonolingualCorpus
) -> list[LayerSimilarity]:
    """Means over all sentences of a corpus, from the embedding up; `model` evaluates."""
    if not len(corpus):
        raise UserError("the split has no sentences", hint="choose another --split")
    lengths, device = corpus.lengths, model.output.weight.device
    sums = torch.zeros(len(model.encoder.layers) + 1, 3, dtype=torch.float64)
    for indices in cut_by_tokens(lengths, sort_by_length(lengths[None]), BATCH_TOKENS):
        source = pad_batch([corpus[int(index)] for index in indices]).to(device)
        outputs, mask = model.encode_deeply(source)[1], source != model.pad
        for layer, output in enumerate(outputs):
            others = outputs[0], outputs[max(layer - 1, 0)]
            figures = [mean_cosine(output, other, mask) for other in others]
            figures.append(inter_similarity(output, mask))
            sums[layer] += torch.stack([cosines.double().sum() for cosines in figures]).cpu()
    return [
        LayerSimilarity(name, layer, to_embedding, to_previous if layer else None, inter)
        for layer, (to_embedding, to_previous, inter) in enumerate((sums / len(corpus)).tolist())
    ]
