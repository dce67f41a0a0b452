"""Learning rates: pure functions of the update number, counted from 1."""

from __future__ import annotations

from typing import assert_never

from nmtdeep.config import optimizer as config
from nmtdeep.config.recipe import Recipe


def inverse_square_root(
    update: int, *, peak: float, warmup_updates: int, warmup_init: float
) -> float:
    """Linear from `warmup_init` to `peak`, then peak sqrt(W) / sqrt(u), with u = update - 1 done.

    fairseq's inverse_sqrt: update number t runs at the rate that belongs to t - 1 updates done, so
    the first update runs at `warmup_init`.
    """
    done = update - 1
    if done < warmup_updates:
        return warmup_init + done * (peak - warmup_init) / warmup_updates
    return peak * (warmup_updates / done) ** 0.5


def noam(update: int, *, scale: float, warmup_updates: int, width: int) -> float:
    """scale d^-0.5 min(t^-0.5, t W^-1.5) (Vaswani et al. 2017, Eq. 3)."""
    return scale * width**-0.5 * min(update**-0.5, update * warmup_updates**-1.5)


def linear(update: int, *, peak: float, warmup_updates: int, max_updates: int) -> float:
    """Up to the peak at update W, then peak (1 - (t - W) / (N + 1 - W)); zero after update N."""
    if update <= warmup_updates:
        return peak * update / warmup_updates
    return peak * max(0.0, 1 - (update - warmup_updates) / (max_updates + 1 - warmup_updates))


def planned(update: int, *, peak: float, warmup_updates: int, length: int | None) -> float:
    """`linear` over a `length` that follows from the machine's speed.

    Until it is known (None), the rate stays at the peak after the warm-up. A warm-up of more than
    half of it ends there, at the rate reached, so that there are always updates to fall over.
    """
    if length is None:
        return peak * min(1.0, update / warmup_updates)
    rise = min(warmup_updates, max(1, length // 2))
    peak *= rise / warmup_updates
    return linear(update, peak=peak, warmup_updates=rise, max_updates=length)


def learning_rate(
    recipe: Recipe, update: int, offset: int = 0, *, last: int | None = None
) -> float:
    """Learning rate of update number `update`, from 1, as the recipe says.

    Args:
        offset: updates that the schedule does not count, after a restart.
        last: number of the last update if `max_updates` is `auto`; None: it is not fixed yet.
    """
    schedule, update = recipe.training.schedule, update - offset
    total = recipe.training.max_updates
    end = last if total == "auto" else total
    left = None if end is None else end - offset
    match schedule:
        case config.InverseSquareRoot(lr=peak, warmup_updates=warmup, warmup_init_lr=first):
            return inverse_square_root(update, peak=peak, warmup_updates=warmup, warmup_init=first)
        case config.Noam(scale=scale, warmup_updates=warmup):
            width = recipe.model.width_of("decoder")
            return noam(update, scale=scale, warmup_updates=warmup, width=width)
        case config.LinearDecay(lr=peak, warmup_updates=warmup):
            if total == "auto":
                return planned(update, peak=peak, warmup_updates=warmup, length=left)
            return linear(update, peak=peak, warmup_updates=warmup, max_updates=total - offset)
        case config.ScheduleVariant():
            return schedule.learning_rate(update, recipe.model, left)
        case _ as unknown:
            assert_never(unknown)
