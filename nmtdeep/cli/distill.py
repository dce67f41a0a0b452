"""`nmtdeep distill`: training text for a student."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from nmtdeep.cli import options
from nmtdeep.cli.options import Overwrite, Quiet, decoding
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.memory import bound_caches

TEACHERS = Argument(metavar="TEACHER", help="Run or checkpoint; several are an ensemble.")
SHARE = Option(min=0.01, max=1.0)
# Options of `translate` that a distillation sets itself.
FIXED = ("n_best", "input_is", "output_is", "prefix_column", *options.SAMPLING)


def distill(
    teachers: Annotated[list[Path], TEACHERS],
    *,
    train: Annotated[Path, Option(metavar="PREFIX")],
    out: Annotated[Path, options.OUT],
    pick: Literal["best", "reference"] = "best",
    metric: Literal["chrf", "bleu"] = "chrf",
    keep: Annotated[float, SHARE] = 1.0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    how: Annotated[DecodingOptions, decoding(*FIXED, processes="one per core for a long file")],
) -> None:
    """Translate a training corpus by a teacher: training text for a student.

    Run the same command again to resume. All translations are kept in OUT.candidates.jsonl, so
    that another value of --keep needs no new translation.

    Args:
        train: PREFIX of PREFIX.en and PREFIX.de; the target side is needed for --pick reference.
        out: Prefix of the files to write: OUT.en and OUT.de.
        pick: Translation of a line: the best of the search, or that of the beam which is nearest
            to the reference.
        metric: Nearness to the reference.
        keep: Share of the pairs to keep, by log-probability per subword.
    """
    from nmtdeep.preprocessing.progress import ProgressBar
    from nmtdeep.tables import describe
    from nmtdeep.tools import distill as tool

    bound_caches()  # before torch reads its settings
    job = tool.Distillation(train, out, pick, metric, keep)
    tool.check_prefix(job, overwrite=overwrite)
    shown = sys.stderr.isatty() and not quiet
    progress = ProgressBar("auto" if shown else "none")
    summary = tool.distill(teachers, job, how, progress=progress)
    if not quiet:
        typer.echo(describe(list(summary.rows())))
