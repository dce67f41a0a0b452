"""The plans of the atlas: which trainings, in which order, at which learning rates."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from atlas_methods import CHOICES, LIPSCHITZ, METHODS, Depth
from atlas_table import Row, Trial, rows_of

# The search goes on by factors of two, below or above, while the best rate is at an edge.
RATES = (4e-3, 8e-3)
LOWEST, HIGHEST = 2.4e-4, 7e-2


class Plan(NamedTuple):
    """Trainings of the same length.

    Attributes:
        every: updates between validations.
        translates: whether BLEU is measured, and equal seconds beside equal tokens.
    """

    methods: tuple[str, ...]
    depths: tuple[Depth, ...]
    seeds: tuple[int, ...]
    updates: int
    every: int
    translates: bool = True


TUNED_AT = Depth(12, 6)
DEPTHS = (TUNED_AT, Depth(24, 6), Depth(6, 6))
PLANS = {
    "tune": Plan(tuple(CHOICES), (TUNED_AT,), (1,), 300, 60, translates=False),
    "main": Plan(tuple(METHODS), DEPTHS, (1, 2, 3), 900, 90),
    "lipschitz": Plan(
        ("pre-norm", "post-norm", "lipschitz-own", "lipschitz-normal", *LIPSCHITZ),
        (Depth(6, 6), Depth(12, 12), Depth(24, 24)),
        (1, 2, 3),
        300,
        60,
    ),
    "long": Plan(tuple(METHODS), (TUNED_AT,), (1,), 4200, 300),
}


def trials(plan: str, rows: Sequence[Row]) -> Iterator[Trial]:
    """What is left of a plan; methods whose learning rate is not tuned yet are left out."""
    methods, depths, seeds = PLANS[plan][:3]
    if plan == "tune":
        nexts = ((method, next_rate(method, rows)) for method in methods)
        yield from (Trial(plan, method, TUNED_AT, 1, lr) for method, lr in nexts if lr)
        return
    done = {row.trial for row in rows}
    tuned = {method: best_rate(method, rows) for method in methods if not next_rate(method, rows)}
    for seed in seeds:
        for depth in depths:
            for method, lr in tuned.items():
                if (trial := Trial(plan, method, depth, seed, lr)) not in done:
                    yield trial


def losses(method: str, rows: Sequence[Row]) -> dict[float, float]:
    """Perplexity by learning rate tried; inf where the training failed."""
    tried = rows_of(rows, plan="tune", method=method)
    return {row.lr: math.inf if row.fails else row.perplexity for row in tried}


def best_rate(method: str, rows: Sequence[Row]) -> float:
    """The rate with the lowest perplexity; of equal ones, the lowest."""
    tried = losses(method, rows)
    return min(sorted(tried), key=lambda lr: tried[lr])


def next_rate(method: str, rows: Sequence[Row]) -> float | None:
    """The rate to try next; None if the best rate has neighbors on both sides."""
    tried = losses(method, rows)
    for lr in RATES:
        if lr not in tried:
            return lr
    best = best_rate(method, rows)
    if best == min(tried) and best / 2 > LOWEST:
        return best / 2
    if best == max(tried) and best * 2 < HIGHEST:
        return best * 2
    return None
