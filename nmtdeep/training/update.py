"""One optimizer step: exact gradients, mixed precision, randomness by position."""

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
from nmtdeep.devices import native_bf16
from nmtdeep.errors import UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.distributed import ALONE, Crew
from nmtdeep.training.loss import Loss, smoothed_cross_entropy
from nmtdeep.training.regularizer import penalty
from nmtdeep.training.room import Room
from nmtdeep.training.sharding import Shards, idle, whole

PLAIN = config.NoRegularizer()


@dataclass(frozen=True)
class UpdateResult:
    """What one update saw, sums over its target tokens in nats.

    Attributes:
        loss: label-smoothed loss, with the regularizer's penalty if there is one.
        nll: negative log-likelihood.
        gradient_norm: before clipping.
        skipped: True if loss or gradients were not finite and nothing was changed.
        scale: fp16's loss scale after it; 0 in other precisions.
        room: if memory ran out, the padded tokens that go through the model at once from here on,
            in the process that has the least; 0 if it sufficed.
    """

    loss: float
    nll: float
    target_tokens: int
    padded_tokens: int
    real_tokens: int
    gradient_norm: float
    skipped: bool
    scale: float = 0.0
    room: int = 0

    @property
    def is_bad(self) -> bool:
        """Whether it was skipped without a loss scale that explains it."""
        return self.skipped and not self.scale


def resolve_precision(precision: str, device: torch.device) -> torch.dtype:
    """dtype of the matrix products for `precision` on `device`.

    Raises:
        UserError: if the device cannot compute it.
    """
    if precision == "auto":
        precision = "bf16" if native_bf16(device) else "fp32"
    if precision == "fp16" and device.type == "cpu":
        raise UserError("fp16 needs a GPU: use --precision bf16 or fp32 on a CPU")
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def seed_for(seed: int, update: int, batch: int, part: int = 0) -> int:
    """Seed of the dropout of one batch: a function of where it stands, so no state is saved.

    Args:
        part: of a batch that memory did not hold as a whole.
    """
    place = (seed, update, batch, part) if part else (seed, update, batch)
    return int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> 1)


def train_update(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    share: Share,
    *,
    update: int,
    lr: float,
    settings: config.Training,
    dtype: torch.dtype,
    crew: Crew = ALONE,
    shards: Shards | None = None,
    room: Room | None = None,
) -> UpdateResult:
    """Forward, backward and step over update number `update`, this process computing its `share`.

    The gradient is that of the smoothed loss summed over all target tokens of the update and
    divided once by their number, however they are spread over batches and processes. Nothing here
    waits for a GPU until the step is on its way (but Muon, which looks before it): what was
    computed is read once, at the end.

    If loss or gradients are not finite, weights and moments stay as they are; the gradients stay
    too, until the next update, so that a diagnosis can look at them.

    Args:
        shards: the model's loss if its parameters are spread over the crew.
        room: remembers from update to update how large a batch memory holds.

    Raises:
        OutOfMemoryError: if memory does not hold the smallest batch.
    """
    model.train()
    model.keep("all" if settings.checkpoint_activations == "none" else "input")
    loss_of = shards or partial(
        batch_loss,
        model,
        smoothing=settings.label_smoothing,
        dtype=dtype,
        regularizer=settings.regularizer,
    )
    room = room or Room(divides=shards is None)
    sums = _backward(loss_of, optimizer, scaler, share, settings.seed, update, room, crew)
    gradients = _gradients(model, crew, summed=shards is not None)
    crew.add([sums])
    for group in optimizer.param_groups:
        group["lr"] = lr
    scaler.unscale_(optimizer)
    norm = whole(torch.nn.utils.get_total_norm(gradients))
    overflow = ~(norm.isfinite() & sums[0].isfinite())
    if settings.clip_norm:
        # A norm that is no number would spread over all gradients before the diagnosis.
        limited = norm.masked_fill(overflow, 0.0)
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), settings.clip_norm, limited)
    _step(optimizer, scaler, overflow)
    length, loss, nll, *rooms = torch.cat((norm.double().view(1), sums)).tolist()
    fp16 = scaler.is_enabled()
    skipped = not (math.isfinite(length) and (fp16 or math.isfinite(loss)))
    if not skipped:
        optimizer.zero_grad(set_to_none=True)
    return UpdateResult(
        loss=loss,
        nll=nll,
        target_tokens=share.target_tokens,
        padded_tokens=share.padded_tokens,
        real_tokens=share.real_tokens,
        gradient_norm=length,
        skipped=skipped,
        scale=scaler.get_scale() if fp16 else 0.0,
        room=int(min(filter(None, rooms), default=0)),
    )


def _backward(
    loss_of: Callable[[Batch], Loss],
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    share: Share,
    seed: int,
    update: int,
    room: Room,
    crew: Crew,
) -> Tensor:
    """Gradients of this process's batches into the parameters.

    Returns:
        Its sums, smoothed and nll, and for each process what `Room` now holds if memory ran out.
    """
    had, device = room.tokens, optimizer.param_groups[0]["params"][0].device
    while True:
        sums = torch.zeros(2 + crew.size, dtype=torch.float64, device=device)
        optimizer.zero_grad(set_to_none=True)  # of a pass that failed, a part may be there
        if _attempt(loss_of, scaler, share, seed, update, room, sums[:2]):
            break
    if room.tokens != had:
        sums[2 + crew.rank] = room.tokens
    if isinstance(loss_of, Shards):
        for _ in range(share.passes - len(share.batches)):
            (0.0 * loss_of(idle(sums.device)).smoothed).backward()
    return sums


def _attempt(
    loss_of: Callable[[Batch], Loss],
    scaler: torch.amp.GradScaler,
    share: Share,
    seed: int,
    update: int,
    room: Room,
    sums: Tensor,
) -> bool:
    """Whether memory sufficed for all gradients and for adding to the two `sums`."""
    tokens = max(share.target_tokens, 1)  # without a target there is nothing to divide

    def compute(batch: Batch) -> None:
        found = loss_of(batch)
        scaler.scale(found.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
        sums.add_(torch.stack((found.smoothed.detach(), found.nll)))

    for number, batch in share.batches:
        for part, rows in enumerate(room.parts(batch)):
            torch.manual_seed(seed_for(seed, update, number, part))
            if not room.holds(rows, compute):
                return False
    return True


def _step(optimizer: Any, scaler: torch.amp.GradScaler, overflow: Tensor) -> None:
    """Step unless gradients overflowed, which the optimizer's kernels see for themselves."""
    if scaler.is_enabled():
        scaler.step(optimizer)
        scaler.update()
        return
    optimizer.found_inf = overflow.to(torch.float32)
    optimizer.step()
    del optimizer.found_inf


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
    regularizer: config.Regularizer = PLAIN,
) -> Loss:
    """Summed loss of one batch with matrix products in `dtype`; see `Loss`.

    A regularizer's penalty is part of `smoothed`.
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
    extra = penalty(regularizer, outputs, batch.source != model.pad, target_tokens)
    return found if extra is None else Loss(found.smoothed + extra, found.nll)
