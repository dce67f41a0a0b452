"""Every layer reads the embeddings as well as the layer below it (modded-nanogpt's x0 lambdas)."""

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from nmtdeep.variants import Combination, CombinationVariant, NotNegative


class EmbeddingShortcut(CombinationVariant):
    """Layer l+1 reads a_l y_l + b_l y_0, a and b learned (Jordan et al. 2024, modded-nanogpt)."""

    type: Literal["nmtdeep_shortcut.embedding"] = "nmtdeep_shortcut.embedding"
    share: NotNegative = Field(0.0, description="b at the start; a starts at 1")

    def build(self, model, stack):
        return Shortcut(stack.depth, self.share)


class Shortcut(Combination):
    """x_{l+1} = a_l y_l + b_l y_0 for l = 1 ... L; the first layer reads y_0 as it is.

    Args:
        depth: number of layers L.
        share: b at the start.
    """

    def __init__(self, depth, share):
        super().__init__()
        self.share = share
        self.weight = nn.Parameter(torch.empty(depth, 2))

    def init_constants(self):
        """The parameters, each with its initial value."""
        yield self.weight, torch.tensor([1.0, self.share]).repeat(len(self.weight), 1)

    def start(self, x):
        """The history: y_0, the newest output, and the number of layers."""
        return x, x, 0

    def add(self, history, output):
        return history[0], output, history[2] + 1

    def read(self, history):
        first, newest, layers = history
        if not layers:
            return first
        a, b = self.weight[layers - 1]
        return a * newest + b * first

    def inherit(self, old, sources):
        """A copied layer keeps the weights on its output."""
        for layer, source in enumerate(sources):
            if source is not None:
                self.weight[layer] = old.weight[source]

    def weight_rows(self):
        """For `nmtdeep analyze combination`: what each layer, and the top, reads of y_0 and y_l."""
        for layers, weights in enumerate(self.weight, start=1):
            yield layers, (0, layers), weights.flip(0)[:, None]
