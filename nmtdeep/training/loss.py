"""Label-smoothed cross-entropy without the whole matrix of logits, and what is added to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, assert_never

import torch
import torch.nn.functional as F
from torch import Tensor

from nmtdeep.config.training import (
    InterSimilarity,
    NoRegularizer,
    RDrop,
    Regularizer,
    RegularizerVariant,
)
from nmtdeep.data.batch import Batch
from nmtdeep.model.kernels import LOW_PRECISION, linear
from nmtdeep.model.kernels.sums import takes_triton
from nmtdeep.model.transformer import Transformer

# Positions whose logits exist at a time, and rows of these that stay in a CPU's cache.
CHUNK, SLICE = 1024, 64
# Positions whose logits exist at a time on a GPU: 0.5 GB of 32,000 types in bf16.
GPU_CHUNK = 8192
UNREGULARIZED = NoRegularizer()
_compiled = cache(partial(torch.compile, dynamic=True, fullgraph=True))


class Loss(NamedTuple):
    """Sums over real target tokens, in nats; divide once, by the tokens of the whole update."""

    smoothed: Tensor
    nll: Tensor


def batch_loss(
    model: Transformer,
    batch: Batch,
    *,
    smoothing: float,
    dtype: torch.dtype,
    regularizer: Regularizer = UNREGULARIZED,
    compiles: bool = True,
) -> Loss:
    """Summed loss of one batch with matrix products in `dtype`; see `Loss` and `LossOptions`.

    A regularizer's penalty is part of `smoothed`. R-Drop's sums are means over both passes.
    """
    alpha = regularizer.alpha if isinstance(regularizer, RDrop) else 0.0
    batch = batch.twice() if alpha else batch
    device = batch.source.device
    mixed = dtype in LOW_PRECISION
    with torch.autocast(device.type, dtype=dtype if mixed else torch.bfloat16, enabled=mixed):
        source, target = batch.packing or (None, None)
        encoded, outputs = model.encode_deeply(batch.source, source)
        hidden = model.decode(batch.target_input, encoded, target)
        if model.output.rounding is not None:
            hidden = model.output.rounding.input(hidden)
    how = LossOptions(
        smoothing, model.pad, dtype=dtype if mixed else None, alpha=alpha, compiles=compiles
    )
    loss = smoothed_cross_entropy(
        hidden,
        model.output.rounded_weight(),
        batch.target_output,
        how,
        bias=model.output.bias,
        tokens=_kept(batch, alpha),
    )
    if alpha:
        return Loss(loss.smoothed / 2, loss.nll / 2)
    target_tokens = (batch.target_output != model.pad).sum(dim=1)
    extra = penalty(regularizer, outputs, batch.source != model.pad, target_tokens)
    return loss if extra is None else Loss(loss.smoothed + extra, loss.nll)


def _kept(batch: Batch, alpha: float) -> int | None:
    """Positions whose logits a GPU computes; all of a packed batch, whose padding is little."""
    if batch.source.device.type == "cpu":
        return None
    if batch.packing:
        return batch.target_output.numel()
    return batch.target_tokens * (2 if alpha else 1)


class LossOptions(NamedTuple):
    """How the loss is computed.

    Attributes:
        smoothing: eps.
        dtype: of the matrix products; None keeps that of the hidden states.
        alpha: weight of R-Drop's divergence, whose two passes are the halves of `hidden`; 0: none.
        chunk: positions whose logits exist at a time; None: as the device can use.
        rows: positions of a chunk that a CPU computes at a time, so that they stay in its cache.
        compiles: whether the sums of a chunk are compiled, on a GPU whose kernel is not taken.
    """

    smoothing: float
    pad: int
    dtype: torch.dtype | None = None
    alpha: float = 0.0
    chunk: int | None = None
    rows: int = SLICE
    compiles: bool = True


def smoothed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    how: LossOptions,
    *,
    bias: Tensor | None = None,
    tokens: int | None = None,
) -> Loss:
    """Sum of -sum_v q(v) log softmax(h W^T + b)_v, q = 1 - eps at the target, else eps/(V-1).

    This is the form of today's fairseq and of Zhang et al. 2019's release. If gradients are
    needed, they are computed in the same pass.

    Args:
        hidden: h, `(..., width)`.
        weight: `(types, width)` output matrix W.
        targets: `(...)` ids; positions of padding do not count.
        bias: `(types,)` b, or None.
        tokens: how many positions are computed, real ones first, which saves waiting for a GPU;
            None: those that are real.
    """
    flat = targets.flatten()
    real: Tensor | slice = slice(None)
    if tokens is None:
        real = (flat != how.pad).nonzero().squeeze(1)
    elif tokens < len(flat) or how.alpha:
        real = (flat == how.pad).to(torch.uint8).argsort(stable=True)[:tokens]
    if how.alpha:  # both passes of a position are neighbors, which no chunk of even size divides
        assert isinstance(real, Tensor)
        real = real.view(2, len(real) // 2).t().flatten()
    states = hidden.flatten(0, -2)[real]
    # Within a function of autograd, gradients are always off.
    given = states, weight, bias, flat[real], how, torch.is_grad_enabled()
    return Loss(*_Chunked.apply(*given))  # type: ignore[no-untyped-call]


class _Chunked(torch.autograd.Function):
    """The sums and, in the same pass, the gradients of the first."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        how: LossOptions,
        trains: bool,
    ) -> tuple[Tensor, Tensor]:
        wanted = trains and any(ctx.needs_input_grad[:3])
        exact = torch.promote_types(hidden.dtype, torch.float32)
        dtype, device = how.dtype or hidden.dtype, hidden.device
        states, matrix = hidden.detach().to(dtype), weight.detach().to(dtype)
        offset = None if bias is None else bias.detach().to(dtype)
        grad_hidden = torch.empty_like(hidden) if wanted else None
        grad_matrix = matrix.new_zeros(matrix.t().shape, dtype=exact) if wanted else None
        grad_bias = None if offset is None else torch.zeros_like(offset, dtype=exact)
        smoothed = torch.zeros((), dtype=exact, device=device)
        nll = torch.zeros((), dtype=exact, device=device)
        chunk = how.chunk or (CHUNK if device.type == "cpu" else GPU_CHUNK)
        parts = -(-len(targets) // chunk)
        if parts > 1:
            chunk = -(-len(targets) // parts // 16) * 16
        for first in range(0, len(targets), chunk):
            part = slice(first, first + chunk)
            logits = linear(states[part], matrix, offset)
            sums: Iterable[tuple[Tensor, Tensor]]
            if device.type == "cpu":
                sums = _sums(logits, targets[part], how, exact, wanted)
            else:
                loss, likelihood, logits = _on_gpu(logits, targets[part], how)
                sums = [(loss, likelihood)]
            for loss, likelihood in sums:
                smoothed += loss
                nll += likelihood
            if grad_hidden is not None and grad_matrix is not None:
                # `logits` now has the gradients with respect to the logits.
                grad_hidden[part] = linear(logits, matrix.t())
                grad_matrix += linear(states[part].t(), logits.t())
                if grad_bias is not None:
                    grad_bias += logits.sum(dim=0, dtype=exact)
            del logits  # the next chunk reuses their memory
        if grad_matrix is not None:
            ctx.save_for_backward(grad_hidden, grad_matrix.t(), grad_bias)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Of hidden, weight and bias; the other arguments have none.
        saved = [None if each is None else each * gradients[0] for each in ctx.saved_tensors]
        return *saved, None, None, None


def _on_gpu(logits: Tensor, targets: Tensor, how: LossOptions) -> tuple[Tensor, Tensor, Tensor]:
    """`fused_sums` in the fastest form; a kernel of Triton writes the gradient over the logits."""
    if how.alpha == 0 and takes_triton(logits):
        from nmtdeep.model.kernels.triton_loss import losses  # absent on most CPUs, slow to import

        loss, nll = losses(logits, targets, how.smoothing, how.pad).sum(dim=1)
        return loss, nll, logits
    fused = _compiled(fused_sums) if how.compiles else fused_sums
    return fused(logits, targets, how.smoothing, how.alpha, how.pad)


def fused_sums(
    logits: Tensor, targets: Tensor, smoothing: float, alpha: float = 0.0, pad: int = -1
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and negative log-likelihood of all positions, and the gradient of the first.

    The same numbers as `_sums`, in a form that a compiler fuses into a few passes over the logits.

    Args:
        logits: `(positions, types)`; the gradient has their dtype.
        targets: `(positions,)` ids; `pad` does not count.
        alpha: as of `LossOptions`.
    """
    types = logits.shape[1]
    rest = smoothing / (types - 1)
    x = logits.float() if logits.dtype in LOW_PRECISION else logits
    x = x - x.amax(dim=1, keepdim=True)
    norms = x.exp().sum(dim=1, keepdim=True).log()
    real = targets[:, None] != pad
    nll = torch.where(real, norms - x.gather(1, targets[:, None]), 0.0).sum()
    everything = torch.where(real, types * norms - x.sum(dim=1, keepdim=True), 0.0).sum()
    at_target = torch.arange(types, device=x.device) == targets[:, None]
    gradient = (x - norms).exp() - rest
    gradient = torch.where(at_target, gradient - (1 - smoothing - rest), gradient)
    gradient = torch.where(real, gradient, 0.0)
    smoothed = (1 - smoothing - rest) * nll + rest * everything
    if alpha:
        between, change = divergence(x)
        smoothed, gradient = smoothed + alpha * between, gradient + alpha * change
    return smoothed, nll, gradient.to(logits.dtype)


def divergence(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of (KL(p || q) + KL(q || p)) / 2 over positions, and its gradient (Wu et al. 2021).

    With d = log p - log q, the gradient of KL(p || q) + KL(q || p) by the logits of p is
    p (d - KL(p || q)) + p - q.

    Args:
        logits: `(2 positions, types)`; rows 2i and 2i + 1 are those of p and q at position i.
    """
    log_p = logits.log_softmax(dim=1).view(-1, 2, logits.shape[1])
    p, difference = log_p.exp(), log_p - log_p.flip(1)
    kl = (p * difference).sum(dim=2, keepdim=True)
    gradient = p * (difference - kl) + p - p.flip(1)
    return kl.sum() / 2, gradient.flatten(0, 1) / 2


def _sums(
    logits: Tensor, targets: Tensor, how: LossOptions, exact: torch.dtype, wanted: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Loss and negative log-likelihood of `rows` positions at a time.

    If gradients are needed, they replace the logits `(positions, types)`.
    """
    types = logits.shape[1]
    rest = how.smoothing / (types - 1)
    for first in range(0, len(targets), how.rows):
        part = slice(first, first + how.rows)
        x = logits[part].to(exact)
        between, change = divergence(x) if how.alpha else (0.0, None)
        columns = targets[part, None]
        x.sub_(x.amax(dim=1, keepdim=True))
        at_target, sums = x.gather(1, columns), x.sum(dim=1, keepdim=True)
        x.exp_()
        mass = x.sum(dim=1, keepdim=True)
        norms = mass.log()
        nll = (norms - at_target).sum()
        # sum_v -log p(v) over all v; the target's share of it is subtracted from the first term.
        everything = (types * norms - sums).sum()
        yield (1 - how.smoothing - rest) * nll + rest * everything + how.alpha * between, nll
        if wanted:
            x.div_(mass).sub_(rest)
            x.scatter_add_(1, columns, torch.full_like(at_target, how.smoothing + rest - 1))
            if change is not None:
                x.add_(change, alpha=how.alpha)
            logits[part] = x


def penalty(
    regularizer: Regularizer, outputs: Sequence[Tensor], mask: Tensor, target_tokens: Tensor
) -> Tensor | None:
    """The regularizer's penalty of a batch, a sum like the loss; None without a regularizer.

    Args:
        outputs: encoder's y_0 ... y_L, each `(sentences, source, width)`.
        mask: `(sentences, source)`, True at real tokens.
        target_tokens: `(sentences,)` numbers; a sentence counts once for each target token.
    """
    match regularizer:
        case NoRegularizer() | RDrop():  # R-Drop's is part of the cross-entropy
            return None
        case InterSimilarity(weight=weight):
            missing = [1 - inter_similarity(output, mask) for output in outputs[1:]]
            return weight * (torch.stack(missing).sum(dim=0) * target_tokens).sum()
        case RegularizerVariant():
            return regularizer.penalty(outputs, mask, target_tokens)
        case _ as unknown:
            assert_never(unknown)


def inter_similarity(output: Tensor, mask: Tensor) -> Tensor:
    """`(sentences,)` mean over positions of cos(y_i, mean of y_i over the sentence).

    Li et al. 2020, section 3: how much of a layer's output is the same everywhere in a sentence.
    They regularize a model of 6 layers towards more of it (Reg-6L) without printing how; the sum of
    1 - similarity over layers is the plainest reading.
    """
    real = mask[..., None].to(output.dtype)
    mean = (output * real).sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)
    return mean_cosine(output, mean, mask)


def mean_cosine(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """`(sentences,)` mean over the real positions of the cosine between two layers' outputs."""
    cosines = F.cosine_similarity(first, second, dim=2) * mask
    return cosines.sum(dim=1) / mask.sum(dim=1)
