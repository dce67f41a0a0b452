"""Residual wrappers: each owns a sublayer and determines the position of the norm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.model.layers.dropout import Dropout
from nmtdeep.model.layers.norm import Norm
from nmtdeep.model.layers.sublayer import Context, State, Sublayer


class Residual(nn.Module):
    """Base of the wrappers; `dropout` is the probability on the sublayer's output."""

    sublayer: Sublayer

    def __init__(self, sublayer: Sublayer, *, dropout: float) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """x + branch(x), `(sentences, positions, width)` to the same."""
        return x + self.branch(x, context, state)

    def branch(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """All that is added to x, for combinations that replace the sum; not every wrapper's."""
        raise NotImplementedError


class NoNorm(Residual):
    """x + dropout(sublayer(x)), the layers of Huang et al. 2020 (T-Fixup)."""

    def branch(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        return self.dropout(self.sublayer(x, context, state))


class ReZero(Residual):
    """x + alpha dropout(sublayer(x)), alpha a learned number (Bachlechner et al. 2021, Eq. 1)."""

    def __init__(self, sublayer: Sublayer, *, dropout: float) -> None:
        super().__init__(sublayer, dropout=dropout)
        self.alpha = nn.Parameter(torch.empty(1))

    def init_constants(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """alpha starts at 0: the whole stack is the identity."""
        yield self.alpha, torch.zeros(1)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        return x + self.alpha * self.dropout(self.sublayer(x, context, state))


class Normed(Residual):
    """A wrapper with a norm of the model's width."""

    def __init__(self, sublayer: Sublayer, norm: Norm, *, dropout: float) -> None:
        super().__init__(sublayer, dropout=dropout)
        self.norm = norm


class PreNorm(Normed):
    """x + dropout(sublayer(norm(x))); the identity path is never normalized."""

    def branch(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        return self.dropout(self.sublayer(self.norm(x), context, state))


class CompleteP(PreNorm):
    """x + m^-alpha dropout(sublayer(norm(x))), m = L / L_base (Dey et al. 2025, arXiv 2505.01618).

    Of the paper's Table 1, the rules of depth: beside the branch, the learning rate of the layers'
    parameters is times m^(alpha-1) and their epsilon times m^-alpha (`training.optimizer`). Initial
    values, weight decay, and all of embeddings, output and top norms do not depend on m. The rules
    of width (muP) are not there.

    Args:
        ratio: m, of this stack.
        alpha: 1 in CompleteP.

    Attributes:
        scale: m^-alpha.
        rate: m^(alpha-1).
    """

    def __init__(
        self, sublayer: Sublayer, norm: Norm, *, ratio: float, alpha: float, dropout: float
    ) -> None:
        super().__init__(sublayer, norm, dropout=dropout)
        self.scale, self.rate = ratio**-alpha, ratio ** (alpha - 1)

    def branch(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        return self.scale * super().branch(x, context, state)


class PostNorm(Normed):
    """norm(x + dropout(sublayer(x))), the order of Vaswani et al. 2017."""

    def forward(
        self, x: Tensor, context: Context, state: State | None = None, bottom: Tensor | None = None
    ) -> Tensor:
        total = x + self.dropout(self.sublayer(x, context, state))
        return self.norm(total if bottom is None else total + bottom)


class NormalizedResidual(Normed):
    """n + dropout(sublayer(n)) with n = norm(x): the released v1 of Xu et al. 2020.

    With a norm on top of the stack this is post-norm after a norm of the embeddings.
    """

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        x = self.norm(x)
        return x + self.dropout(self.sublayer(x, context, state))


class Admin(Normed):
    """norm(omega x + dropout(sublayer(x))), omega a learned `(width,)` vector (Liu et al. 2020)."""

    def __init__(self, sublayer: Sublayer, norm: Norm, *, dropout: float) -> None:
        super().__init__(sublayer, norm, dropout=dropout)
        self.omega = nn.Parameter(torch.empty(norm.normalized_shape))

    def init_constants(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """omega starts at 1, which is post-norm; Admin's initializer then measures it."""
        yield self.omega, torch.ones(self.omega.shape)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        return self.norm(x * self.omega + self.dropout(self.sublayer(x, context, state)))


class DeepNorm(Normed):
    """norm(alpha x + dropout(sublayer(x))), alpha of `deep_norm_scales` (Wang et al. 2022)."""

    def __init__(self, sublayer: Sublayer, norm: Norm, *, alpha: float, dropout: float) -> None:
        super().__init__(sublayer, norm, dropout=dropout)
        self.alpha = alpha

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        return self.norm(x * self.alpha + self.dropout(self.sublayer(x, context, state)))


class DeepNormScales(NamedTuple):
    """alpha weighs the residual, beta the sublayer's matrices at the start."""

    alpha: float
    beta: float


def deep_norm_scales(
    encoder_depth: int, decoder_depth: int
) -> tuple[DeepNormScales, DeepNormScales]:
    """Encoder's and decoder's scales for N and M layers (Wang et al. 2022, Figure 2).

    Encoder: alpha = 0.81 (N^4 M)^(1/16), beta = 0.87 (N^4 M)^(-1/16);
    decoder: alpha = (3 M)^(1/4), beta = (12 M)^(-1/4).
    """
    both = (encoder_depth**4 * decoder_depth) ** (1 / 16)
    return (
        DeepNormScales(0.81 * both, 0.87 / both),
        DeepNormScales((3 * decoder_depth) ** 0.25, (12 * decoder_depth) ** -0.25),
    )
