"""Norms over the features of a position, and of a head."""

from __future__ import annotations

from torch import Tensor, nn


class RmsNorm(nn.RMSNorm):
    """g x / sqrt(mean(x^2) + epsilon), in the dtype of g (Zhang and Sennrich 2019).

    Compared with a layer norm, no mean is subtracted and no bias is added.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape."""
        return super().forward(x.to(self.weight.dtype))


Norm = nn.LayerNorm | RmsNorm


class HeadNorm(RmsNorm):
    """An RMS norm of each head's queries, or of its keys; all heads share g.

    Queries and keys of bounded length bound the scores of attention: softmax(norm(q) norm(k)^T /
    sqrt(d_h)) (Dehghani et al. 2023). A bias of keys would change no weight.
    """

    def forward(self, x: Tensor) -> Tensor:
        """`(sentences, positions, width)` to the same, in the dtype of `x`."""
        heads = x.view(*x.shape[:2], -1, *self.normalized_shape)
        return super().forward(heads).flatten(2).to(x.dtype)
