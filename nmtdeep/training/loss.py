"""Label-smoothed cross-entropy over a large vocabulary, without the large matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmtdeep.model.kernels import linear

CHUNK, SLICE = 1024, 64


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
    tokens: int | None = None,
) -> Loss:
    """Sum of -sum_v q(v) log softmax(hidden weight^T)_v, q = 1 - eps at the target, else eps/(V-1).

    This is the form of today's fairseq and of Zhang et al. 2019's release. Logits exist for
    CHUNK positions at a time; where gradients are wanted they are computed in the same pass.

    Args:
        hidden: `(..., width)`.
        weight: `(types, width)` output matrix.
        targets: `(...)` ids; positions that hold `pad` count nothing.
        smoothing: eps.
        pad: id of padding.
        dtype: of the matrix products; None keeps that of `hidden`.
        tokens: how many targets are real, so that a GPU need not be asked; None: count them.
    """
    flat = targets.flatten()
    if tokens is None:
        real = (flat != pad).nonzero().squeeze(1)
    else:
        real = (flat == pad).to(torch.uint8).argsort(stable=True)[:tokens]
    rows = hidden.flatten(0, -2)[real]
    smoothed, nll = _Chunked.apply(rows, weight, flat[real], smoothing, dtype or hidden.dtype)  # type: ignore[no-untyped-call]
    return Loss(smoothed, nll)


class _Chunked(torch.autograd.Function):
    """The sums and, while logits are at hand, the gradients of the first."""

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
        rows, matrix = hidden.detach().to(dtype), weight.detach().to(dtype)
        grad_hidden = torch.empty_like(hidden) if wanted else None
        grad_matrix = matrix.new_zeros(matrix.t().shape, dtype=exact) if wanted else None
        smoothed = torch.zeros((), dtype=exact, device=hidden.device)
        nll = torch.zeros((), dtype=exact, device=hidden.device)
        for first in range(0, len(targets), CHUNK):
            part = slice(first, first + CHUNK)
            logits = linear(rows[part], matrix)
            for loss, likelihood in _slices(logits, targets[part], smoothing, exact, wanted):
                smoothed += loss
                nll += likelihood
            if grad_hidden is not None and grad_matrix is not None:
                # What were logits are now the gradients with respect to them.
                grad_hidden[part] = linear(logits, matrix.t())
                grad_matrix += linear(rows[part].t(), logits.t())
            del logits  # the next ones take their memory
        if grad_matrix is not None:
            ctx.save_for_backward(grad_hidden, grad_matrix.t())
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * gradients[0], grad_weight * gradients[0], None, None, None


def _slices(
    logits: Tensor, targets: Tensor, smoothing: float, exact: torch.dtype, wanted: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Loss and negative log-likelihood, a few rows at a time so that they stay in a CPU's cache.

    Where gradients are wanted they take the place of the logits `(positions, types)`.
    """
    types = logits.shape[1]
    rest = smoothing / (types - 1)
    step = SLICE if logits.device.type == "cpu" else CHUNK
    for first in range(0, len(targets), step):
        part = slice(first, first + step)
        x = logits[part].to(exact)
        columns = targets[part, None]
        x.sub_(x.amax(dim=1, keepdim=True))
        at_target, sums = x.gather(1, columns), x.sum(dim=1, keepdim=True)
        x.exp_()
        mass = x.sum(dim=1, keepdim=True)
        norms = mass.log()
        nll = (norms - at_target).sum()
        # sum_v -log p(v) over all v; the target's share of it is taken off the first term.
        everything = (types * norms - sums).sum()
        yield (1 - smoothing - rest) * nll + rest * everything, nll
        if wanted:
            x.div_(mass).sub_(rest)
            x.scatter_add_(1, columns, torch.full_like(at_target, smoothing + rest - 1))
            logits[part] = x
