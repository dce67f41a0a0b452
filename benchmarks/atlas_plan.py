"""The plans of the atlas: which trainings, in which order, at which learning rates."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import NamedTuple

from atlas_methods import (
    END,
    GROWN,
    GROWTH,
    LEADING,
    LIPSCHITZ,
    MAIN,
    METHODS,
    STAGE_UPDATES,
    WARMUP,
    Depth,
    both,
)
from atlas_table import Row, Trial, rows_of

# The search begins here, and goes on by factors of two, below or above, while the best rate is at
# an edge.
FIRST = (8e-3,)
LOWEST, HIGHEST = 2.4e-4, 6.4e-2


class Plan(NamedTuple):
    """Trainings of the same length.

    Attributes:
        every: updates between validations.
        tuned_by: the plan whose best learning rates it takes, or begins its own search with.
        begins_as: the plan whose trainings are the beginnings of these.
        longer: than the plan `tuned_by`, so that no higher rate than the best there is tried.
        translates: whether BLEU is measured.
        timed: whether equal seconds are measured beside equal tokens.
        across: whether models of different depths are compared with each other.
        lr: the learning rate of all methods, instead of tuned ones.
        changes: to the recipe.
        lengths: updates by method and depth, where they are not `updates`.
    """

    methods: tuple[str, ...]
    depths: tuple[Depth, ...]
    seeds: tuple[int, ...]
    updates: int
    every: int
    optimizer: str = "muon"
    tuned_by: str = "tune-muon"
    begins_as: str = ""
    longer: bool = False
    translates: bool = True
    timed: bool = False
    across: bool = False
    lr: float = 0.0
    changes: tuple[str, ...] = ()
    lengths: Mapping[tuple[str, Depth], int] = MappingProxyType({})

    def length(self, method: str, depth: Depth) -> int:
        """Updates of a training."""
        return self.lengths.get((method, depth), self.updates)


TUNED_AT = Depth(12, 6)
DEPTHS = (TUNED_AT, Depth(24, 6), Depth(6, 6))
SEEDS = (1, 2, 3)
# Seeds that no search of a learning rate has seen: those of `tune` and `tune-convergence` are 1.
UNSEEN = (2, 3, 4)
TEN = tuple(range(2, 12))
SEARCH_SEED = 100
# Xu et al. 2020: target tokens of an update, and the peak rate, 512^-0.5 * 8000^-0.5.
PAPER_TOKENS, PAPER_LR = 25_000, 4.9e-4
# The best in `tune-end`, but for sparse blocks, whose 16e-3 is too high for 4,800 updates.
END_LR = 8e-3
TUNE = Plan(
    (*METHODS, *LIPSCHITZ), (TUNED_AT,), SEEDS[:1], 300, 60, "adam", tuned_by="", translates=False
)
TUNE_CONVERGENCE = TUNE._replace(
    methods=(
        *("pre-norm", "post-norm", "ds-init-0.5", "ds-init-0.25"),
        *("lipschitz-own", "lipschitz-normal", *LIPSCHITZ),
        *("admin", "deep-norm", "dlcl-pre", "dlcl-post"),
    ),
    depths=(Depth(6, 6), Depth(12, 12), Depth(24, 24)),
    tuned_by="tune",
)
TUNE_MUON = TUNE._replace(methods=MAIN, optimizer="muon")
LINEAR = (f"training.schedule={{type: linear, warmup_updates: {WARMUP}}}",)
TRANSLATED = "training.validation={bleu: true, best_by: bleu, patience: 0}"
# Depth after equal updates (for a GPU): wider models to the end of training, each method with the
# rate that is best at each depth on the whole schedule. The seed of the search is no other's.
WIDE = (
    "model.width=128",
    *both("feed_forward", "512"),
    "model.dropout={embedding: 0.3, residual: 0.3, attention: 0, activation: 0}",
    *(
        f"training.batches.{key}=4096"
        for key in ("group_tokens", "max_tokens", "tokens_per_update")
    ),
    "training.schedule={type: linear, warmup_updates: 400}",
    TRANSLATED,
)
TUNE_DEPTH = Plan(
    ("pre-norm", "dlcl-pre"),
    (Depth(6, 6), TUNED_AT, Depth(24, 6)),
    (SEARCH_SEED,),
    *(4000, 200),
    tuned_by="",
    translates=False,
    across=True,
    changes=WIDE,
)
# Depth at equal seconds on a CPU: as many updates as take the time of 2,400 of the plain model with
# 24+6 layers, by the tokens per second of atlas/speed.csv; each model's rate falls to zero there.
TUNE_SECONDS = TUNE_MUON._replace(
    methods=("pre-norm", "dlcl-pre", "deep-norm"),
    depths=(Depth(6, 6), Depth(24, 6), TUNED_AT),
    seeds=(SEARCH_SEED,),
    updates=2400,
    every=240,
    tuned_by="tune-end",
    across=True,
    changes=LINEAR,
    lengths={
        ("pre-norm", Depth(6, 6)): 4800,
        ("dlcl-pre", Depth(6, 6)): 4390,
        ("pre-norm", TUNED_AT): 3680,
        ("dlcl-pre", TUNED_AT): 3360,
        ("dlcl-pre", Depth(24, 6)): 2150,
        ("deep-norm", Depth(6, 6)): 4800,
        ("deep-norm", TUNED_AT): 3630,
    },
)
# The plain model for four times these seconds, 40 epochs with 6+6 layers and 20 with 24+6, and one
# that grows from 6 to 24.
TUNE_SECONDS_4 = TUNE_SECONDS._replace(
    methods=("pre-norm", "grown"),
    depths=(Depth(6, 6), Depth(24, 6)),
    updates=4 * 2400,
    every=960,
    tuned_by="tune-seconds",
    longer=True,
    translates=True,
    changes=(*LINEAR, TRANSLATED),
    lengths={("pre-norm", Depth(6, 6)): 4 * 4800, ("grown", Depth(24, 6)): 14_500},
)
TUNE_END_POST = TUNE_MUON._replace(
    methods=("post-norm", "ds-init-0.5", "admin"),
    seeds=(SEARCH_SEED,),
    updates=4800,
    every=240,
    tuned_by="tune-muon",
    changes=LINEAR,
)
PLANS = {
    "tune-muon": TUNE_MUON,
    "long": Plan(MAIN, (TUNED_AT,), SEEDS, 2400, 120, begins_as="main", timed=True),
    "main": Plan(MAIN, DEPTHS, SEEDS, 600, 60, timed=True),
    "tune-end": TUNE_MUON._replace(
        methods=END, updates=1200, every=120, tuned_by="tune-muon", changes=LINEAR
    ),
    "end": Plan(LEADING, (TUNED_AT,), TEN, 4800, 240, lr=END_LR, changes=LINEAR),
    # The order of post-norm to the end, at rates that are tuned on this very schedule.
    "tune-end-post": TUNE_END_POST,
    "end-post": TUNE_END_POST._replace(seeds=UNSEEN, tuned_by="tune-end-post", translates=True),
    # At END_LR units of DeepNorm stop learning.
    "end-low": Plan(("deep-norm",), (TUNED_AT,), UNSEEN, 4800, 240, lr=END_LR / 2, changes=LINEAR),
    "tune-seconds": TUNE_SECONDS,
    "seconds": TUNE_SECONDS._replace(seeds=SEEDS, tuned_by="tune-seconds", translates=True),
    "tune-seconds-4": TUNE_SECONDS_4,
    "seconds-4": TUNE_SECONDS_4._replace(seeds=SEEDS, tuned_by="tune-seconds-4"),
    "tune-depth": TUNE_DEPTH,
    "depth": TUNE_DEPTH._replace(seeds=SEEDS, tuned_by="tune-depth", translates=True),
    "growth": Plan(tuple(GROWTH), (Depth(24, 6),), SEEDS, 4 * STAGE_UPDATES, 120),
    "tune": TUNE,
    "adam": Plan(MAIN, (TUNED_AT,), UNSEEN, 600, 60, "adam", "tune", translates=False),
    # mHC from two starts, with both in one precision.
    "mhc-start": Plan(("mhc", "mhc-one-stream"), (TUNED_AT,), UNSEEN, 600, 60, lr=2 * END_LR),
    "tune-convergence": TUNE_CONVERGENCE,
    "convergence": TUNE_CONVERGENCE._replace(seeds=UNSEEN, tuned_by="tune-convergence"),
    # Where perplexity still falls after the 300 updates of `tune-convergence`.
    "convergence-long": Plan(
        ("post-norm", "glorot-own", "lipschitz-normal"),
        (Depth(24, 24),),
        UNSEEN,
        *(1200, 120, "adam"),
        translates=False,
        lr=2.5e-4,
    ),
    "paper-batch": Plan(
        ("post-norm", "glorot-own", "lipschitz-own", "lipschitz-normal", "pre-norm"),
        (Depth(12, 12),),
        (1,),
        400,
        40,
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
    done = {row.trial for row in rows}
    for seed, depth, method in product(seeds, depths, methods):
        if method in GROWN and depth != Depth(24, 6):
            continue
        if lr := rate(plan, method, depth, rows):
            trial = Trial(plan, method, depth, seed, lr)
            if trial not in done:
                yield trial


def rate(plan: str, method: str, depth: Depth, rows: Sequence[Row]) -> float | None:
    """The learning rate of the next training; None if it is not known, or if none is left."""
    by = PLANS[plan].tuned_by
    if not plan.startswith("tune"):
        return PLANS[plan].lr or tuned_rate(method, depth, rows, by)
    first: Sequence[float] = FIRST
    if by:
        begins = "pre-norm" if method in GROWN else method
        if not (other := tuned_rate(begins, depth, rows, by)):
            return None
        first = (other,)
    highest = max(first) if PLANS[plan].longer else HIGHEST
    return next_rate(method, rows_of(rows, plan=plan, depth=depth), first, highest)


def tuned_rate(method: str, depth: Depth, rows: Sequence[Row], plan: str) -> float | None:
    """The rate that `plan` found, at this depth if it tunes there; None if it is not known yet.

    Grown models have the sparse one's.
    """
    method = "sparse-pre" if method in GROWTH else method
    at = depth if depth in PLANS[plan].depths else TUNED_AT
    tried = rows_of(rows, plan=plan, depth=at)
    return None if rate(plan, method, at, rows) else best_rate(method, tried)


def losses(method: str, rows: Sequence[Row]) -> dict[float, float]:
    """Perplexity by learning rate tried, of a plan's rows; inf where the training failed."""
    tried = rows_of(rows, method=method)
    return {row.lr: math.inf if row.fails else row.perplexity for row in tried}


def best_rate(method: str, rows: Sequence[Row]) -> float | None:
    """The rate with the lowest perplexity; of equal ones, the lowest. None if none was tried."""
    tried = losses(method, rows)
    return min(sorted(tried), key=lambda lr: tried[lr], default=None)


def next_rate(
    method: str, rows: Sequence[Row], first: Sequence[float] = FIRST, highest: float = HIGHEST
) -> float | None:
    """The rate to try next; None if the best rate has neighbors on both sides, or below `highest`.

    Args:
        first: rates that are tried before anything else.
    """
    tried = losses(method, rows)
    best = best_rate(method, rows) or math.inf
    near = (lr for lr in (best / 2, best * 2) if LOWEST < lr <= highest)
    return next((lr for lr in (*first, *near) if lr not in tried), None)
