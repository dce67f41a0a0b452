"""Decoding step by step: which of the positions seen so far belong to which hypothesis."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOW = (torch.bfloat16, torch.float16)


class Slots:
    """The places of self-attention's keys and values, and the hypotheses that grew from each.

    A step adds one slot for each hypothesis of a sentence, and what stands in a slot never moves: a
    search that reorders hypotheses reorders rows of `bias`, which all layers share, and not the
    keys and values of every layer. Weights of slots that a hypothesis did not grow from are exactly
    zero.

    Args:
        like: a tensor of the model's dtype and device; its first dimension counts sentences.

    Attributes:
        sentences: how many there are.
        bias: `(sentences, 1, hypotheses, slots)`, 0 where a hypothesis reads a slot and -inf
            elsewhere; None as long as no sentence has more than one hypothesis, which reads all.
        offsets: `(slots,)`, how many positions a slot stands from the newest: ..., -1, 0.
    """

    def __init__(self, like: Tensor) -> None:
        self.sentences = like.shape[0]
        self._zero = exact(like.new_zeros(()))
        self.bias: Tensor | None = None
        self.offsets = torch.empty(0, dtype=torch.int64, device=like.device)

    def add(self, hypotheses: int) -> None:
        """One slot more for each of a sentence's hypotheses, which reads it alone."""
        before = self.offsets.shape[0]
        newest = torch.zeros(hypotheses, dtype=torch.int64, device=self.offsets.device)
        self.offsets = torch.cat((self.offsets - 1, newest))
        if hypotheses == 1 and self.bias is None:
            return
        shape = (self.sentences, 1, hypotheses)
        if self.bias is None:
            self.bias = self._zero.expand(*shape, before)
        own = self._zero.new_full((hypotheses, hypotheses), -math.inf).fill_diagonal_(0)
        self.bias = torch.cat((self.bias, own.expand(*shape, hypotheses)), dim=3)

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Hypotheses `rows` go on; `sentences` are those that stay, None if all do."""
        if sentences is not None:
            self.sentences = len(sentences)
        if self.bias is not None:
            chosen = self.bias.flatten(0, 2)[rows]
            self.bias = chosen.view(self.sentences, 1, -1, chosen.shape[1])


def exact(x: Tensor) -> Tensor:
    """`x` in fp32 where a CPU computes attention in fp32 although the model is in bf16."""
    return x.float() if x.device.type == "cpu" and x.dtype in LOW else x


def keep(x: Tensor, sentences: Tensor) -> Tensor:
    """Rows `sentences` of `x`, as a view of it on a CPU.

    A search fills the places of finished sentences with the last ones, so that there only few rows
    have to be moved.
    """
    if x.device.type != "cpu":
        return x[sentences]
    moved = (sentences != torch.arange(len(sentences))).nonzero()[:, 0]
    x[moved] = x[sentences[moved]]
    return x[: len(sentences)]
