"""ResiDual (Xie et al. 2023)."""

from torch import nn

from nmtdeep.variants import Combination


class DualStreams(Combination):
    """x_k = LN_k(x_{k-1} + f_k) and r_k = r_{k-1} + s f_k, r_0 = s x_0; the top is a x_K + LN(r_K).

    f_k is the output of sublayer k, which reads x_{k-1}: post-norm, but that the top also reads
    the sum of all outputs. All norms are the combination's.

    Args:
        norms: LN_1 ... LN_K, bottom first.
        top: LN.
        scale: s.
        alpha: a.
    """

    connects = "sublayers"

    def __init__(self, norms, top, *, scale, alpha):
        super().__init__()
        self.norms = nn.ModuleList(norms)
        self.top = top
        self.scale = scale
        self.alpha = alpha

    def start(self, x):
        """The history: x_k, r_k and k."""
        return x, self.scale * x, 0

    def add(self, history, output):
        x, total, sublayers = history
        x = self.norms[sublayers](x + output)
        return x, total + self.scale * output, sublayers + 1

    def read(self, history):
        x, total, sublayers = history
        if sublayers < len(self.norms):
            return x
        return self.alpha * x + self.top(total)

    def inherit(self, old, sources):
        """The top's norm, and for a copied layer the norms of its sublayers."""
        self.top.load_state_dict(old.top.state_dict())
        each = len(self.norms) // len(sources)
        for number, norm in enumerate(self.norms):
            layer, sublayer = divmod(number, each)
            if (source := sources[layer]) is not None:
                norm.load_state_dict(old.norms[source * each + sublayer].state_dict())
