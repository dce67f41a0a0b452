"""Label-smoothed cross-entropy over a large vocabulary, without the large matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK = 512


class Loss(NamedTuple):
    """Sums over real target tokens, in nats; divide once, by the tokens of the whole update."""

    smoothed: Tensor
    nll: Tensor


def smoothed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    smoothing: float,
    pad: int,
    dtype: torch.dtype | None = None,
) -> Loss:
    """Sum of -sum_v q(v) log softmax(hidden weight^T)_v with q = 1-eps at the target, else eps/(V-1).

    This is the form of today's fairseq and of Zhang et al. 2019's release. Logits exist for
    CHUNK positions at a time; where gradients are wanted they are computed in the same pass.

    Args:
        hidden: `(..., width)`.
        weight: `(types, width)` output matrix.
        targets: `(...)` ids; positions that hold `pad` count nothing.
        smoothing: eps.
        pad: id of padding.
        dtype: of the matrix products; None keeps that of `hidden`.
    """
    flat = targets.flatten()
    real = (flat != pad).nonzero().squeeze(1)
    rows = hidden.flatten(0, -2)[real]
    smoothed, nll = _Chunked.apply(rows, weight, flat[real], smoothing, dtype or hidden.dtype)  # type: ignore[no-untyped-call]
    return Loss(smoothed, nll)


class _Chunked(torch.autograd.Function):
    """The sum and, while logits are at hand, its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        smoothing: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        matrix = weight.detach().to(dtype)
        grad_hidden = torch.empty_like(hidden) if wanted else None
        grad_weight = torch.zeros_like(weight, dtype=exact) if wanted else None
        smoothed = torch.zeros((), dtype=exact, device=hidden.device)
        nll = torch.zeros((), dtype=exact, device=hidden.device)
        for first in range(0, len(targets), CHUNK):
            part = slice(first, first + CHUNK)
            rows = hidden[part].detach().to(dtype)
            loss, likelihood, gradient = _chunk(
                rows, matrix, targets[part], smoothing, exact, wanted
            )
            smoothed += loss
            nll += likelihood
            if grad_hidden is not None and grad_weight is not None:
                gradient = gradient.to(dtype)
                grad_hidden[part] = gradient @ matrix
                grad_weight += gradient.t() @ rows
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = gradients[0]
        return grad_hidden * scale, (grad_weight * scale), None, None, None


def _chunk(
    rows: Tensor,
    matrix: Tensor,
    targets: Tensor,
    smoothing: float,
    exact: torch.dtype,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, negative log-likelihood and gradient with respect to the logits of one chunk."""
    logits = (rows @ matrix.t()).to(exact)
    types = logits.shape[1]
    rest = smoothing / (types - 1)
    columns = targets[:, None]
    norms = logits.logsumexp(dim=1)
    nll = norms.sum() - logits.gather(1, columns).sum()
    # sum_v -log p(v) over all v; the target's share is put right below.
    everything = types * norms.sum() - logits.sum()
    loss = (1 - smoothing - rest) * nll + rest * everything
    if wanted:
        logits.sub_(norms[:, None]).exp_().sub_(rest)
        correction = torch.full_like(columns, smoothing + rest - 1, dtype=exact)
        logits.scatter_add_(1, columns, correction)
    return loss, nll, logits
