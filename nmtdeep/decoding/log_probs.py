"""Model log-probabilities of existing translations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nmtdeep.data.batch import pad_batch
from nmtdeep.data.batching import cut_by_tokens, sort_by_length
from nmtdeep.decoding.searcher import LEAST_TOKENS, Searcher
from nmtdeep.decoding.translator import Translator
from nmtdeep.text.vocabulary import EOS, PAD


def log_probabilities(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> list[list[float]]:
    """log p(target | source) of each pair of lines, in order; ensembles average probabilities.

    Returns:
        For each pair, the log-probability of each target subword and of the end of sentence, in
        nats.

    Raises:
        CheckpointError: if one is not finite.
    """
    form = translator.options.input_is
    pipeline = translator.pipeline
    pairs = [
        (pipeline.source.encode(source, form), pipeline.target.encode(target, form))
        for source, target in zip(sources, targets, strict=True)
    ]
    lengths = np.array([[len(side) for side in pair] for pair in pairs], dtype=np.int32).T
    scores: list[list[float]] = [[] for _ in pairs]
    if pairs:
        order = sort_by_length(lengths)
        # The logits of all positions are there at once, unlike in a search.
        budget = translator.options.max_tokens or LEAST_TOKENS
        cuts = cut_by_tokens(lengths.max(axis=0), order, budget)
        batches = ([pairs[index] for index in batch] for batch in cuts)
        for batch, rows in zip(cuts, translator.compute(_log_probs, batches), strict=True):
            for index, row in zip(batch, rows, strict=True):
                scores[index] = row[: len(pairs[index][1])]
    for number, each in enumerate(scores, 1):
        if not all(map(math.isfinite, each)):
            raise translator.without_finite(number)
    return scores


@torch.inference_mode()
def _log_probs(
    searcher: Searcher, pairs: Sequence[tuple[list[int], list[int]]]
) -> list[list[float]]:
    source, target = (pad_batch(ids).to(searcher.device) for ids in zip(*pairs, strict=True))
    start = torch.full((len(pairs), 1), EOS, device=searcher.device)
    shifted = torch.cat((start, target[:, :-1]), dim=1)
    each: list[Tensor] = []
    for model in searcher.models:
        logits = model.output(model(source, shifted)).float()
        # The search never produces padding, fillers or <unk>; their probability stays in the
        # denominator.
        each.append(logits.log_softmax(dim=2).gather(2, target[:, :, None])[:, :, 0])
    mean = torch.stack(each).logsumexp(dim=0) - math.log(len(each))
    return mean.masked_fill(target == PAD, 0.0).tolist()
