"""What is added to the loss of an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import torch
import torch.nn.functional as F
from torch import Tensor

from nmtdeep.config.training import InterSimilarity, NoRegularizer, Regularizer


def penalty(
    regularizer: Regularizer, outputs: Sequence[Tensor], mask: Tensor, target_tokens: Tensor
) -> Tensor | None:
    """The recipe's penalty of a batch, summed as the loss is; None where there is none.

    Args:
        outputs: encoder's y_0 ... y_L, each `(sentences, source, width)`.
        mask: `(sentences, source)`, True at real tokens.
        target_tokens: `(sentences,)` numbers, so that a sentence counts once for each.
    """
    match regularizer:
        case NoRegularizer():
            return None
        case InterSimilarity(weight=weight):
            missing = [1 - inter_similarity(output, mask) for output in outputs[1:]]
            return weight * (torch.stack(missing).sum(dim=0) * target_tokens).sum()
        case _ as unknown:
            assert_never(unknown)


def inter_similarity(output: Tensor, mask: Tensor) -> Tensor:
    """`(sentences,)` mean over positions of cos(y_i, mean of y_i over the sentence).

    Li et al. 2020, section 3: how much of a layer's output is the same everywhere in a sentence.
    They regularize a model of 6 layers towards more of it (Reg-6L) without printing how; the sum of
    1 - similarity over layers is the plainest reading.
    """
    real = mask[..., None].to(output.dtype)
    count = real.sum(dim=1)
    mean = (output * real).sum(dim=1, keepdim=True) / count[:, None]
    cosines = F.cosine_similarity(output, mean, dim=2) * real[..., 0]
    return cosines.sum(dim=1) / count[:, 0]
