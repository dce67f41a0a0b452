"""Variants of seven slots, as one module `mine`; extending.md says what each slot needs."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from nmtdeep import variants
from nmtdeep.variants import Positive, layer_norm, matrix


class Maps(variants.SublayerVariant):
    """W tanh(x): one map at each position."""

    type: Literal["mine.maps"] = "mine.maps"
    takes_packing = True  # each position by itself

    def build(self, model, stack):
        return Map(model.width)


class Map(variants.Sublayer):
    def __init__(self, width):
        super().__init__()
        self.map = variants.Linear(width, width)

    def init_matrices(self):
        yield matrix(self.map, "inner")

    def forward(self, x, context, state=None):
        return self.map(x.tanh())


class Gained(variants.ResidualVariant):
    """x + g dropout(sublayer(norm(x))), g one learned number."""

    type: Literal["mine.gained"] = "mine.gained"
    norms = "before"
    gain: Positive = Field(1.0, description="g at the start")

    def build(self, sublayer, model, stack):
        return Gain(sublayer, layer_norm(model), self.gain, dropout=model.dropout.residual)


class Gain(variants.Residual):
    def __init__(self, sublayer, norm, start, *, dropout):
        super().__init__(sublayer, dropout=dropout)
        self.norm = norm
        self.start = start
        self.gain = nn.Parameter(torch.empty(1))

    def init_constants(self):
        yield self.gain, torch.tensor([self.start])

    def forward(self, x, context, state=None):
        return x + self.gain * self.dropout(self.sublayer(self.norm(x), context, state))


class Scaled(variants.CombinationVariant):
    """Sublayer k reads the embeddings and a_j times each branch j below it, a learned."""

    type: Literal["mine.scaled"] = "mine.scaled"

    def build(self, model, stack):
        return Scales(stack.depth, len(stack.sublayers))


class Scales(variants.Combination):
    connects = "sublayers"  # what `add` gets are branches, without their residual sums

    def __init__(self, depth, sublayers):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(depth, sublayers))

    def init_constants(self):
        yield self.weight, torch.ones(self.weight.shape)

    def start(self, x):
        return x, 0  # the sum so far, and the number of branches in it

    def add(self, history, output):
        total, count = history
        return total + self.weight.flatten()[count] * output, count + 1

    def read(self, history):
        return history[0]

    def inherit(self, old, sources):
        for layer, source in enumerate(sources):
            if source is not None:
                self.weight[layer] = old.weight[source]


class Near(variants.PositionsVariant):
    """Learned vectors of positions, and q b exp(-|j - i|) added to the scores of attention."""

    type: Literal["mine.near"] = "mine.near"
    longest: variants.Count = Field(1024, description="positions that have a vector")

    def build(self, model, stack):
        return Table(self.longest, model.width)

    def in_attention(self, model, stack):
        return Distance(model.width // stack.heads)


class Table(nn.Module):
    def __init__(self, longest, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(longest, width))

    def init_constants(self):
        yield self.weight, torch.zeros(self.weight.shape)

    def forward(self, x, start):
        places = torch.arange(start, start + x.shape[1], device=x.device)
        return x + self.weight[places.clamp(max=len(self.weight) - 1)]


class Distance(nn.Module):
    def __init__(self, head_width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(head_width))

    def init_matrices(self):
        return ()

    def init_constants(self):
        yield self.weight, torch.zeros(self.weight.shape)

    def at(self, offsets):
        near = offsets.abs().to(self.weight.dtype).neg().exp()
        return near[..., None] * self.weight, None


class Orthogonal(variants.InitializerVariant):
    """Orthogonal matrices; queries and keys N(0, 1 / fan_in)."""

    type: Literal["mine.orthogonal"] = "mine.orthogonal"

    def rules(self, model):
        def rule(matrix, side, layer):
            if matrix.role in ("query", "key"):
                return 1 / math.sqrt(matrix.fan_in)
            return nn.init.orthogonal_

        return variants.Rules(rule, matrices="normal")


class Momentum(variants.OptimizerVariant):
    """SGD with momentum."""

    type: Literal["mine.momentum"] = "mine.momentum"
    momentum: variants.Probability = Field(0.9, description="decay rate of the momentum")

    def build(self, transformer):
        return torch.optim.SGD(transformer.parameters(), momentum=self.momentum)


class Cosine(variants.ScheduleVariant):
    """Linear warm-up to the peak, then half a cosine down to zero; the peak without an end."""

    type: Literal["mine.cosine"] = "mine.cosine"
    peak: Positive = Field(1e-3, description="peak learning rate")

    def learning_rate(self, update, model, last):
        if update < self.warmup_updates or last is None:
            return self.peak * min(update / self.warmup_updates, 1)
        done = (update - self.warmup_updates) / max(last - self.warmup_updates, 1)
        return self.peak * (1 + math.cos(math.pi * min(done, 1))) / 2
