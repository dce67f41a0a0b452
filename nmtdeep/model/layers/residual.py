"""Residual wrappers: each owns a sublayer and determines the position of the norm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.model.layers.context import Context, State, Sublayer
from nmtdeep.model.layers.dropout import Dropout


class Residual(nn.Module):
    """Base of the wrappers.

    Args:
        sublayer: the wrapped sublayer.
        dropout: probability on the sublayer's output.
    """

    sublayer: Sublayer

    def __init__(self, sublayer: Sublayer, *, dropout: float) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Apply the wrapped sublayer, `(sentences, positions, width)` to the same."""
        raise NotImplementedError


class NoNorm(Residual):
    """x + dropout(sublayer(x)), the layers of Huang et al. 2020 (T-Fixup)."""

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Sublayer, add."""
        return x + self.dropout(self.sublayer(x, context, state))


class ReZero(Residual):
    """x + alpha dropout(sublayer(x)), alpha a learned number (Bachlechner et al. 2021, Eq. 1)."""

    def __init__(self, sublayer: Sublayer, *, dropout: float) -> None:
        super().__init__(sublayer, dropout=dropout)
        self.alpha = nn.Parameter(torch.empty(1))

    def constants(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """alpha starts at 0: the whole stack is the identity."""
        yield self.alpha, torch.zeros(1)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Sublayer, scale, add."""
        return x + self.alpha * self.dropout(self.sublayer(x, context, state))


class Normed(Residual):
    """A wrapper with a norm.

    Args:
        sublayer: the wrapped sublayer.
        norm: a layer norm of the model's width.
        dropout: probability on the sublayer's output.
    """

    def __init__(self, sublayer: Sublayer, norm: nn.LayerNorm, *, dropout: float) -> None:
        super().__init__(sublayer, dropout=dropout)
        self.norm = norm


class PreNorm(Normed):
    """x + dropout(sublayer(norm(x))); the identity path is never normalized."""

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Norm, sublayer, add."""
        return x + self.dropout(self.sublayer(self.norm(x), context, state))


class PostNorm(Normed):
    """norm(x + dropout(sublayer(x))), the order of Vaswani et al. 2017."""

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Sublayer, add, norm."""
        return self.norm(x + self.dropout(self.sublayer(x, context, state)))


class NormalizedResidual(Normed):
    """n + dropout(sublayer(n)) with n = norm(x): the released v1 of Xu et al. 2020.

    With a norm on top of the stack this is post-norm after a norm of the embeddings.
    """

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Norm, sublayer, add to the normalized input."""
        x = self.norm(x)
        return x + self.dropout(self.sublayer(x, context, state))


class Admin(Normed):
    """norm(omega x + dropout(sublayer(x))), omega a learned `(width,)` vector (Liu et al. 2020)."""

    def __init__(self, sublayer: Sublayer, norm: nn.LayerNorm, *, dropout: float) -> None:
        super().__init__(sublayer, norm, dropout=dropout)
        self.omega = nn.Parameter(torch.empty(norm.normalized_shape))

    def constants(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """omega starts at 1, which is post-norm; Admin's initializer then measures it."""
        yield self.omega, torch.ones(self.omega.shape)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Sublayer, weigh the input, add, norm."""
        return self.norm(x * self.omega + self.dropout(self.sublayer(x, context, state)))


class DeepNorm(Normed):
    """norm(alpha x + dropout(sublayer(x))), alpha a constant of the depths (Wang et al. 2022).

    Args:
        sublayer: the wrapped sublayer.
        norm: a layer norm of the model's width.
        alpha: see `deep_norm_scales`.
        dropout: probability on the sublayer's output.
    """

    def __init__(
        self, sublayer: Sublayer, norm: nn.LayerNorm, *, alpha: float, dropout: float
    ) -> None:
        super().__init__(sublayer, norm, dropout=dropout)
        self.alpha = alpha

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Sublayer, add to the weighted input, norm."""
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
