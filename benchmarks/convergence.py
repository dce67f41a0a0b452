"""Convergence in miniature, on real text: which deep post-norm models train, and which do not.

    python benchmarks/convergence.py --data DIR --out DIR [--methods NAME ...] [--depths 6 12 18 24]
        [--width 64] [--updates N] [--tokens 2048] [--lr LR] [--warmup N] [--seeds 1] [--jobs 2]
        [KEY=VALUE ...]
    python benchmarks/convergence.py --out DIR --table

--data is a data directory of nmtdeep preprocess with recipe multi30k-en-de; a value that was
changed there must be given here too, for the usual figures text.bpe.merges=8000. Every method is
trained at every depth (of both sides) by the procedure behind nmtdeep train: same text, batches,
dropout, learning rate and number of updates, in a run directory of its own below --out and by a
process of one thread that keeps to its own core. A command that was interrupted goes on where it
was. --table shows the validation perplexity after equal updates; "fails" is a model that diverged
or stayed at the unigram level, the perplexity of predicting each token by its frequency.

A name such as glorot-normal has the matrices first, then the embedding table: normal is N(0, 1/d),
small the table of Xu et al. 2020: U(-e, e) with e = sqrt(6 / (V + d)) for Glorot, their baseline,
and sqrt(2 / (V + d)) for Lipschitz. Both are in post-norm order, as the paper prints v1;
v1-glorot-small and v1-lipschitz-small are the same pair as in the authors' toolkit (residual
normalized, fewer biases). All other methods have normal tables.

The schedule is the same for all, and short: T-Fixup and ReZero are meant to do without a warm-up,
and no method has a learning rate of its own. That is a comparison of stability, not of quality.
"""

import argparse
from collections.abc import Sequence

from miniature import add_arguments, cell, parse, recipe, run, settings, unigram_of
from trials import Record, Trial

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory


def both(slot: str, value: str) -> tuple[str, ...]:
    """The same choice in encoder and decoder."""
    return tuple(f"model.{side}.{slot}={value}" for side in ("encoder", "decoder"))


def start(initializer: str) -> tuple[str, ...]:
    return (f"model.initializer={initializer}",)


PRE, POST = both("residual", "pre_norm"), both("residual", "post_norm")
DLCL, V1 = both("combination", "dlcl"), (*both("residual", "normalized"), "model.biases=inner")
GLOROT_SMALL = start("{type: glorot, embeddings: glorot}")
LIPSCHITZ_NORMAL = start("{type: lipschitz, embeddings: normal}")
METHODS = {
    "glorot-normal": (*POST, *start("glorot")),
    "lipschitz-normal": (*POST, *LIPSCHITZ_NORMAL),
    "glorot-small": (*POST, *GLOROT_SMALL),
    "lipschitz-small": (*POST, *start("lipschitz")),
    "ds-init-0.25": (*POST, *start("{type: depth_scaled, exponent: 0.25}")),
    "ds-init-0.5": (*POST, *start("{type: depth_scaled, exponent: 0.5}")),
    "pre-norm": (*PRE, *start("glorot")),
    "dlcl-post": (*POST, *DLCL, *start("glorot")),
    "dlcl-pre": (*PRE, *DLCL, *start("glorot")),
    "admin": (*both("residual", "admin"), *start("admin")),
    "deep-norm": (*both("residual", "deep_norm"), *start("deep_norm")),
    "rezero": (*both("residual", "rezero"), *start("glorot")),
    "t-fixup": (*both("residual", "no_norm"), *start("t_fixup")),
    "v1-glorot-small": (*V1, *GLOROT_SMALL),
    "v1-lipschitz-small": (*V1, *start("lipschitz")),
    "v1-lipschitz-normal": (*V1, *LIPSCHITZ_NORMAL),
}
USUAL = list(METHODS)[:11]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Convergence of deep models in miniature")
    add_arguments(parser)
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=USUAL,
        metavar="NAME",
        help=f"of {', '.join(METHODS)}; default: the first {len(USUAL)}",
    )
    parser.add_argument("--depths", type=int, nargs="+", default=[6, 12, 18, 24])
    return parse(parser, given)


def method_recipe(options: argparse.Namespace, method: str, *, depth: int, seed: int) -> Recipe:
    return recipe(options, [*both("depth", str(depth)), *METHODS[method]], seed=seed)


def trials(options: argparse.Namespace) -> list[Trial]:
    """In the order of the depths given, so that those come first that the user wants first."""
    facts = {
        "settings": settings(options),
        "unigram_perplexity": unigram_of(DataDirectory.open(options.data)),
    }
    return [
        Trial(
            method,
            method_recipe(options, method, depth=depth, seed=seed),
            facts,
            options.data,
            options.out,
        )
        for depth in options.depths
        for seed in range(1, options.seeds + 1)
        for method in options.methods
    ]


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Methods by depths."""
    depths = sorted({record["depth"] for record in records})
    present = {record["method"] for record in records}
    table = [["method", *(f"{depth}+{depth}" for depth in depths)]]
    for method in (name for name in METHODS if name in present):
        of_method = [record for record in records if record["method"] == method]
        cells = [cell([one for one in of_method if one["depth"] == depth]) for depth in depths]
        table.append([method, *cells])
    return table


if __name__ == "__main__":
    run(arguments(), trials, rows)
