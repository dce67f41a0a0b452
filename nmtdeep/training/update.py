"""One optimiser step: exact gradients, mixed precision, randomness by position."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmtdeep.config import training as config
from nmtdeep.data.batching import Batch, Share
from nmtdeep.errors import DivergenceError, UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.distributed import ALONE, Crew
from nmtdeep.training.loss import Loss, smoothed_cross_entropy
from nmtdeep.training.regulariser import penalty
from nmtdeep.training.sharding import Shards, idle, local, whole

PLAIN = config.NoRegulariser()
SMALLEST_SCALE = 2.0**-10


@dataclass(frozen=True)
class UpdateResult:
    """What one update saw, sums over its target tokens in nats.

    Attributes:
        loss: label-smoothed loss, with the regulariser's penalty if there is one.
        nll: negative log-likelihood.
        gradient_norm: before clipping.
        skipped: True if fp16 gradients overflowed and nothing was changed.
    """

    loss: float
    nll: float
    target_tokens: int
    padded_tokens: int
    real_tokens: int
    gradient_norm: float
    skipped: bool


def resolve_precision(precision: str, device: torch.device) -> torch.dtype:
    """dtype of the matrix products for `precision` on `device`.

    Raises:
        UserError: if the device cannot compute it.
    """
    if precision == "auto":
        precision = "bf16" if _native_bf16(device) else "fp32"
    if precision == "fp16" and device.type == "cpu":
        raise UserError("fp16 needs a GPU: use --precision bf16 or fp32 on a CPU")
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def _native_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= 8
    try:
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    except AttributeError:  # another processor family or another torch
        return False


def seed_for(seed: int, update: int, batch: int) -> int:
    """Seed of the dropout of one batch: a function of where it stands, so no state is saved."""
    return int(np.random.SeedSequence((seed, update, batch)).generate_state(1, np.uint64)[0] >> 1)


def train_update(
    model: Transformer,
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    share: Share,
    *,
    update: int,
    lr: float,
    settings: config.Training,
    dtype: torch.dtype,
    crew: Crew = ALONE,
    shards: Shards | None = None,
) -> UpdateResult:
    """Forward, backward and step over update number `update`, this process computing its `share`.

    The gradient is that of the smoothed loss summed over all target tokens of the update and
    divided once by their number, however they are spread over batches and processes. Nothing here
    waits for a GPU until the step is on its way (but Muon, which looks before it): what was
    computed is read once, at the end.

    Args:
        shards: the model's loss if its parameters are spread over the crew.

    Raises:
        DivergenceError: if loss or gradients are not finite, naming update and parameter.
    """
    model.train()
    model.keep("all" if settings.checkpoint_activations == "none" else "input")
    if shards:
        loss_of: Callable[[Batch], Loss] = shards
    else:
        loss_of = partial(
            batch_loss,
            model,
            smoothing=settings.label_smoothing,
            dtype=dtype,
            regulariser=settings.regulariser,
        )
    sums = _backward(loss_of, scaler, share, model.output.weight.device, settings.seed, update)
    if shards:
        for _ in range(share.passes - len(share.batches)):
            (0.0 * shards(idle(sums.device)).smoothed).backward()
    gradients = _gradients(model, crew, summed=shards is not None)
    crew.add([sums])
    for group in optimiser.param_groups:
        group["lr"] = lr
    scaler.unscale_(optimiser)
    norm = whole(torch.nn.utils.get_total_norm(gradients))
    overflow = ~norm.isfinite()
    if settings.clip_norm:
        # A norm that is no number would spread over all gradients before the diagnosis.
        limited = norm.masked_fill(overflow, 0.0)
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), settings.clip_norm, limited)
    _step(optimiser, scaler, overflow)
    loss, nll, length = torch.stack((*sums, norm.double())).tolist()
    finite = math.isfinite(length)
    too_small = scaler.is_enabled() and scaler.get_scale() < SMALLEST_SCALE
    if too_small or not (finite or scaler.is_enabled()):
        raise DivergenceError(_diagnosis(model, update, loss / share.target_tokens, crew))
    optimiser.zero_grad(set_to_none=True)
    return UpdateResult(
        loss=loss,
        nll=nll,
        target_tokens=share.target_tokens,
        padded_tokens=share.padded_tokens,
        real_tokens=share.real_tokens,
        gradient_norm=length,
        skipped=not finite,
    )


def _backward(
    loss_of: Callable[[Batch], Loss],
    scaler: torch.amp.GradScaler,
    share: Share,
    device: torch.device,
    seed: int,
    update: int,
) -> Tensor:
    """Gradients of this process's batches into the parameters; its sums, smoothed and nll."""
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    for number, batch in share.batches:
        torch.manual_seed(seed_for(seed, update, number))
        found = loss_of(batch)
        scaler.scale(found.smoothed / share.target_tokens).backward()  # type: ignore[no-untyped-call]
        sums += torch.stack((found.smoothed.detach(), found.nll))
    return sums


def _step(optimiser: Any, scaler: torch.amp.GradScaler, overflow: Tensor) -> None:
    """Step unless gradients overflowed, which the optimiser's kernels see for themselves."""
    if scaler.is_enabled():
        scaler.step(optimiser)
        scaler.update()
        return
    optimiser.found_inf = overflow.to(torch.float32)
    optimiser.step()
    del optimiser.found_inf


def _gradients(model: Transformer, crew: Crew, *, summed: bool) -> list[Tensor]:
    """All gradients, sums over the crew; a process without a batch of this update adds zeros."""
    if crew.size > 1:
        for one in model.parameters():
            if one.requires_grad and one.grad is None:
                one.grad = torch.zeros_like(one)
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    if not summed:
        crew.add(gradients)
    return gradients


def batch_loss(
    model: Transformer,
    batch: Batch,
    *,
    smoothing: float,
    dtype: torch.dtype,
    regulariser: config.Regulariser = PLAIN,
) -> Loss:
    """Summed loss of one batch with matrix products in `dtype`; see `Loss`.

    A regulariser's penalty is part of `smoothed`.
    """
    device = batch.source.device
    mixed = dtype in (torch.bfloat16, torch.float16)
    with torch.autocast(device.type, dtype=dtype if mixed else torch.bfloat16, enabled=mixed):
        encoded, outputs = model.encode_deeply(batch.source)
        hidden = model.decode(batch.target_input, encoded)
    found = smoothed_cross_entropy(
        hidden,
        model.output.weight,
        batch.target_output,
        smoothing=smoothing,
        pad=model.pad,
        dtype=dtype if mixed else None,
        tokens=None if device.type == "cpu" else batch.target_tokens,
    )
    target_tokens = (batch.target_output != model.pad).sum(dim=1)
    extra = penalty(regulariser, outputs, batch.source != model.pad, target_tokens)
    return found if extra is None else Loss(found.smoothed + extra, found.nll)


def _diagnosis(model: Transformer, update: int, loss: float, crew: Crew) -> str:
    """Which gradients are not finite, and what to try."""
    gradients = {
        name: local(parameter.grad)
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    # Summed, because of a sharded gradient each process sees a part.
    count = torch.stack([(~one.isfinite()).sum() for one in gradients.values()])
    crew.add([count])
    bad = [name for name, found in zip(gradients, count.tolist(), strict=True) if found]
    where = f"{len(bad)} gradients are not finite, first {bad[0]}" if bad else "gradients overflow"
    return (
        f"training diverged at update {update}: loss {loss:.3f} per token, {where}; try a lower "
        "training.schedule.lr, more warmup_updates, training.clip_norm=1, or residual: pre_norm; "
        "the last checkpoint is whole"
    )
