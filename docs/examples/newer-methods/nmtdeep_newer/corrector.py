"""PCformer (Li et al. 2024): a predictor in the layers, a corrector between them."""

import torch
from torch import nn

from nmtdeep.variants import Combination, Layer, States

# The steps to where F_2, F_3, ... are evaluated, by order.
STEPS = {2: (1.0,), 4: (0.5, 0.5, 1.0)}


class PredictorLayer(Layer):
    """P = x + sum_i alpha (1 - alpha)^(n-i) F_i, F_1 = F(x), F_i = F(x + a_i F_{i-1}), i <= n.

    F is the whole layer, its residuals included. Order n = 2 has a = (1), order 4 (1/2, 1/2, 1).
    The first output of the layer is P, the second F of what is read then. In a decoder each
    evaluation of F has a state of its own.

    Args:
        sublayers: the residual wrappers in order.
        order: n.
    """

    def __init__(self, sublayers, *, order):
        super().__init__(sublayers)
        self.order = order
        self.branches = 2
        self.alpha = nn.Parameter(torch.empty(1))

    def init_constants(self):
        """alpha starts at 1/2."""
        yield self.alpha, torch.tensor([0.5])

    def start(self, context):
        start = super().start
        return States([start(context) for _ in range(self.order + 1)])

    def forward(self, x, context, states=None, branch=None):
        own = [None] * (self.order + 1) if states is None else states.parts
        layer = super().forward
        if branch == 1:
            return layer(x, context, own[-1])
        value = layer(x, context, own[0])
        total = value
        for step, state in zip(STEPS[self.order], own[1:], strict=False):
            value = layer(x + step * value, context, state)
            total = (1 - self.alpha) * total + value
        return x + self.alpha * total


class Corrector(Combination):
    """c_l = sum_{k<l} V_lk h_k + V_ll LN'_l(P_l), h_l = LN_l(F_l(c_l)), x_l = sum_{k<=l} W_lk h_k.

    h_0 is the embedding. P_l is what layer l predicts from x_{l-1}, and F_l(c_l) what it has for
    the corrected c_l. V and W start as averages, 1/(l+1).

    Args:
        predicted: LN'_1 ... LN'_L.
        corrected: LN_1 ... LN_L.
    """

    connects = "sublayers"

    def __init__(self, predicted, corrected):
        super().__init__()
        self.predicted = nn.ModuleList(predicted)
        self.corrected = nn.ModuleList(corrected)
        shape = len(predicted), len(predicted) + 1
        self.before = nn.Parameter(torch.empty(shape))  # V
        self.after = nn.Parameter(torch.empty(shape))  # W

    def init_constants(self):
        reads = torch.ones(self.before.shape).tril(1)
        for weight in (self.before, self.after):
            yield weight, reads / reads.sum(dim=1, keepdim=True)

    def start(self, x):
        """The history: h_0, h_1, ..., and whether the newest is only predicted."""
        return [x], False

    def add(self, history, output):
        entries, predicted = history
        if predicted:
            layer = len(entries) - 2
            return [*entries[:-1], self.corrected[layer](output)], False
        return [*entries, self.predicted[len(entries) - 1](output)], True

    def read(self, history):
        entries, predicted = history
        if len(entries) == 1:
            return entries[0]
        row = (self.before if predicted else self.after)[len(entries) - 2]
        return sum(weight * entry for weight, entry in zip(row, entries, strict=False))

    def inherit(self, old, sources):
        """Norms of copied layers; rows of the first copies, over the entries that were there."""
        entries = {0: 0}
        for layer, source in enumerate(sources):
            if source is None:
                continue
            for ours, theirs in ((self.predicted, old.predicted), (self.corrected, old.corrected)):
                ours[layer].load_state_dict(theirs[source].state_dict())
            if source + 1 in entries:
                continue
            entries[source + 1] = layer + 1
            for ours, theirs in ((self.before, old.before), (self.after, old.after)):
                ours[layer] = 0
                for entry, place in entries.items():
                    ours[layer, place] = theirs[source, entry]

    def weight_rows(self):
        """For `nmtdeep analyze combination`: W."""
        for layers, row in enumerate(self.after, start=1):
            yield layers, range(layers + 1), row[: layers + 1, None]
