"""The plans of the atlas: which trainings, in which order, at which learning rates."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from atlas_methods import GROWTH, LIPSCHITZ, MAIN, METHODS, STAGE_UPDATES, Depth
from atlas_table import Row, Trial, rows_of

# The search goes on by factors of two, below or above, while the best rate is at an edge.
RATES = (8e-3, 16e-3)
LOWEST, HIGHEST = 2.4e-4, 7e-2


class Plan(NamedTuple):
    """Trainings of the same length.

    Attributes:
        every: updates between validations.
        tuned_by: the plan whose best learning rates it takes.
        begins_as: the plan whose trainings are the beginnings of these.
        translates: whether BLEU is measured, and equal seconds beside equal tokens.
        lr: the learning rate of all methods, instead of tuned ones.
        changes: to the recipe.
    """

    methods: tuple[str, ...]
    depths: tuple[Depth, ...]
    seeds: tuple[int, ...]
    updates: int
    every: int
    optimizer: str = "muon"
    tuned_by: str = "tune-muon"
    begins_as: str = ""
    translates: bool = True
    lr: float = 0.0
    changes: tuple[str, ...] = ()


TUNED_AT = Depth(12, 6)
DEPTHS = (TUNED_AT, Depth(24, 6), Depth(6, 6))
SEEDS = (1, 2, 3)
# Xu et al. 2020: target tokens of an update, and the peak rate, 512^-0.5 * 8000^-0.5.
PAPER_TOKENS, PAPER_LR = 25_000, 4.9e-4
TUNE = Plan((*METHODS, *LIPSCHITZ), (TUNED_AT,), (1,), 300, 60, "adam", translates=False)
PLANS = {
    "tune-muon": TUNE._replace(methods=MAIN, optimizer="muon"),
    "long": Plan(MAIN, (TUNED_AT,), SEEDS, 2400, 120, begins_as="main"),
    "main": Plan(MAIN, DEPTHS, SEEDS, 600, 60),
    "growth": Plan(tuple(GROWTH), (Depth(24, 6),), SEEDS, 4 * STAGE_UPDATES, 120),
    "tune": TUNE,
    "adam": Plan(MAIN, (TUNED_AT,), SEEDS, 600, 60, "adam", "tune", translates=False),
    "lipschitz": Plan(
        ("pre-norm", "post-norm", "lipschitz-own", "lipschitz-normal", *LIPSCHITZ),
        (Depth(6, 6), Depth(12, 12), Depth(24, 24)),
        SEEDS,
        300,
        60,
        "adam",
        "tune",
        translates=False,
    ),
    "paper-batch": Plan(
        ("post-norm", "glorot-own", "lipschitz-own", "lipschitz-normal", "pre-norm"),
        (Depth(12, 12),),
        (1,),
        200,
        20,
        "adam",
        translates=False,
        lr=PAPER_LR,
        changes=(
            f"training.batches.tokens_per_update={PAPER_TOKENS}",
            "training.batches.max_tokens=4096",
            "training.batches.group_tokens=4096",
        ),
    ),
}


def trials(plan: str, rows: Sequence[Row]) -> Iterator[Trial]:
    """What is left of a plan; methods whose learning rate is not tuned yet are left out."""
    methods, depths, seeds = PLANS[plan][:3]
    if plan.startswith("tune"):
        tried = rows_of(rows, plan=plan)
        nexts = ((method, next_rate(method, tried)) for method in methods)
        yield from (Trial(plan, method, TUNED_AT, 1, lr) for method, lr in nexts if lr)
        return
    done = {row.trial for row in rows}
    fixed, by = PLANS[plan].lr, PLANS[plan].tuned_by
    rates = {method: fixed or tuned_rate(method, rows, by) for method in methods}
    for seed in seeds:
        for depth in depths:
            for method in methods:
                trial = Trial(plan, method, depth, seed, rates[method])
                if rates[method] and trial not in done:
                    yield trial


def tuned_rate(method: str, rows: Sequence[Row], plan: str) -> float:
    """The rate that `plan` found; 0 if it is not known yet. Grown models have the sparse one's."""
    method, tried = "sparse-pre" if method in GROWTH else method, rows_of(rows, plan=plan)
    return 0.0 if next_rate(method, tried) else best_rate(method, tried)


def losses(method: str, rows: Sequence[Row]) -> dict[float, float]:
    """Perplexity by learning rate tried, of a plan's rows; inf where the training failed."""
    tried = rows_of(rows, method=method)
    return {row.lr: math.inf if row.fails else row.perplexity for row in tried}


def best_rate(method: str, rows: Sequence[Row]) -> float:
    """The rate with the lowest perplexity; of equal ones, the lowest."""
    tried = losses(method, rows)
    return min(sorted(tried), key=lambda lr: tried[lr])


def next_rate(method: str, rows: Sequence[Row]) -> float | None:
    """The rate to try next; None if the best rate has neighbors on both sides."""
    tried = losses(method, rows)
    if len(tried) < len(RATES):
        return next(lr for lr in RATES if lr not in tried)
    best = best_rate(method, rows)
    if best == min(tried) and best / 2 > LOWEST:
        return best / 2
    if best == max(tried) and best * 2 < HIGHEST:
        return best * 2
    return None
