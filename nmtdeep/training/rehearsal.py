"""The largest batch of the plan, tried before the first update: what does not fit is said then."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch.autograd.graph import saved_tensors_hooks

from nmtdeep import memory
from nmtdeep.config import model as config
from nmtdeep.data.batching import Batch, Indices, collate, split
from nmtdeep.data.windows import Epoch, Place, Window
from nmtdeep.errors import OutOfMemoryError
from nmtdeep.training.footprint import kept_bytes
from nmtdeep.training.room import SMALLER, described, longer_side, release, suffices
from nmtdeep.training.sharding import local
from nmtdeep.training.trainee import Trainee
from nmtdeep.units import size

# Groups whose batches are made to find the largest.
LOOKED_AT = 256
# Of what a measurement says would fit, which leaves out what is held for a moment only.
SAFE = 0.8


def rehearse(trainee: Trainee, place: Place) -> None:
    """Compute the largest batch of the window at `place` once, forward and backward.

    Model, optimizer and random numbers are as before. All processes must call this.

    Raises:
        OutOfMemoryError: in all of them if one lacks memory, with the `max_tokens` that would fit.
    """
    recipe, corpus = trainee.recipe, trainee.data.corpus("train")
    batches = recipe.training.batches
    window = Epoch(corpus, recipe.training.seed, place.epoch).window(
        place.window,
        group_tokens=batches.group_tokens,
        tokens_per_update=batches.tokens_per_update,
    )

    def planned(max_tokens: int) -> Batch:
        indices = window.indices[largest(window, recipe.model, max_tokens)]
        return collate(corpus, indices).to(trainee.device)

    asked, longest = batches.max_tokens, window.longest.tokens
    trainee.model.train()
    trainee.model.keep("all" if recipe.training.checkpoint_activations == "none" else "input")
    devices = [trainee.device] if trainee.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        if trainee.device.type == "cpu" and trainee.shards is None:
            _agree(trainee, *_measured(trainee, planned(asked), asked, longest))
        _agree(trainee, *_tried(trainee, planned, asked, longest))
    if devices:
        torch.cuda.reset_peak_memory_stats(trainee.device)
    release()


def largest(window: Window, model: config.Model, max_tokens: int) -> Indices:
    """The batch that keeps most between forward and backward; sentences by place in the window.

    Batches are made of the groups that promise most, until none of the others can be larger.
    """
    groups = [group for update in window.updates for group in update]
    sides = np.stack([window.lengths[:, group].max(axis=1) for group in groups], axis=1)
    counts = np.array([len(group) for group in groups])
    # Neither side of a batch has more cells than this, nor is it longer.
    cells = np.minimum(counts * sides, np.maximum(max_tokens, sides))
    bounds = kept_bytes(model, cells, sides)
    best, heaviest = groups[0], -1.0
    for number in np.argsort(-bounds, kind="stable")[:LOOKED_AT].tolist():
        if heaviest >= bounds[number]:
            break
        for batch in split(window.lengths, [groups[number]], max_tokens):
            longest = window.lengths[:, batch].max(axis=1)
            weight = float(kept_bytes(model, len(batch) * longest, longest))
            if weight > heaviest:
                best, heaviest = batch, weight
    return best


def _measured(trainee: Trainee, batch: Batch, asked: int, longest: int) -> tuple[int, str]:
    """What would fit and why, by what one and two sentences keep; a system kills, it does not say.

    This counts what is certain to be there at once: kept activations, gradients and moments.
    """
    free = memory.available()
    if free is None:
        return asked, ""
    count = len(batch.source)
    one = _saved_bytes(trainee, batch.rows(0, 1))
    each = _saved_bytes(trainee, batch.rows(0, 2)) - one if count > 1 else one
    trained = [p for p in trainee.model.parameters() if p.requires_grad]
    held = sum(p.numel() * p.element_size() for p in [*trained, *_absent_moments(trainee)])
    fixed = held + one - each
    share = free // trainee.crew.local_size
    needed = fixed + each * count
    if needed <= share:
        return asked, ""
    pairs = int(SAFE * (share - fixed) / each)
    fits = max(pairs, 0) * longer_side(batch)
    why = f"{described(batch)}, the largest planned, needs {size(needed)} of memory and "
    return fits if fits >= longest else 0, f"{why}{size(share)} is free"


def _saved_bytes(trainee: Trainee, batch: Batch) -> int:
    """Bytes that the forward pass of a batch keeps for the way back, parameters left out."""
    own = {one.untyped_storage().data_ptr() for one in trainee.model.parameters()}
    seen: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        held = trainee.loss_of(batch)  # alive, so that no memory counts twice
        total = sum(seen.values())
    del held
    return total


def _absent_moments(trainee: Trainee) -> list[torch.Tensor]:
    """Each parameter, as often as the optimizer will hold as many numbers that it does not yet."""
    optimizer = trainee.optimizer
    return [
        one
        for group in optimizer.param_groups
        for moment in group["moments"]
        if moment != "step" and not optimizer.state
        for one in group["params"]
    ]


def _tried(
    trainee: Trainee, planned: Callable[[int], Batch], asked: int, longest: int
) -> tuple[int, str]:
    """What fits, found by trying, and why it is less than `asked`."""
    batch, most = planned(asked), asked
    why = f"{described(batch)}, the largest planned, does not fit in memory"
    while not suffices(partial(_pass, trainee, batch)):
        if trainee.shards:
            raise OutOfMemoryError(f"{why}: give --max-tokens {max(asked // 2, 1)}")
        low, high = 0, len(batch.source)
        while high - low > max(high // 16, 1):
            middle = (low + high) // 2
            fits = suffices(partial(_pass, trainee, batch.rows(0, middle)))
            low, high = (middle, high) if fits else (low, middle)
        found = max(low * longer_side(batch), longest)
        if not low or found >= most:
            return 0, why
        most = found
        batch = planned(most)
    trainee.optimizer.zero_grad(set_to_none=True)
    return most, why


def _pass(trainee: Trainee, batch: Batch) -> None:
    """Forward and backward, beside the moments that are there from the first update on."""
    trainee.optimizer.zero_grad(set_to_none=True)
    moments = [torch.empty_like(local(one)) for one in _absent_moments(trainee)]
    trainee.loss_of(batch).smoothed.backward()  # type: ignore[no-untyped-call]
    del moments


def _agree(trainee: Trainee, fits: int, why: str) -> None:
    """Raise in all processes if one of them cannot hold what was asked for."""
    asked, crew = trainee.recipe.training.batches.max_tokens, trainee.crew
    lacking = torch.zeros(crew.size, dtype=torch.int64)
    lacking[crew.rank] = asked - fits
    crew.add([lacking])
    most = int(lacking.max())
    if not most:
        return
    why = why or "the largest batch planned does not fit in the memory of another process"
    if most == asked:
        raise OutOfMemoryError(f"{why}, and no smaller one would: {SMALLER}")
    raise OutOfMemoryError(
        f"{why}: give --max-tokens {asked - most}, which fits and changes no update, or "
        "training.checkpoint_activations=layers"
    )
