"""`nmtdeep report`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from nmtdeep.cli.choices import Verbose
from nmtdeep.errors import UserError


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Run directories; the others are compared with the first."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The page.")] = Path("report.html"),
    data: Annotated[
        Path | None,
        typer.Option(help="Data directory: translate a held-out set and look into the models."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="The set that is translated.", show_default="the first test, or else valid"
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Translations that are shown.")] = 10,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Number of CPU threads.")] = None,
    verbose: Verbose = False,
) -> None:
    """Write one page about runs that any browser shows: scores, curves, translations, pictures.

    It loads nothing from the network, so that it can be sent and kept as it is.
    """
    if split and not data:
        raise UserError(f"--split {split} is a part of a data directory: give --data too")
    if output.is_dir():
        raise UserError(f"--output {output} is a directory: name a file, such as report.html")
    if not output.parent.is_dir():
        raise UserError(f"--output {output}: there is no directory {output.parent}: make it first")
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"a report needs {' and '.join(missing)}, which "
            f'{"is" if len(missing) == 1 else "are"} not here: pip install "nmtdeep[report]"'
        )
    import torch

    from nmtdeep.reporting import run_report
    from nmtdeep.units import size

    torch.set_num_threads(threads or torch.get_num_threads())
    run_report.report(
        runs,
        output,
        data=data,
        split=split,
        samples=samples,
        device=device,
        say=lambda text: typer.echo(text, err=True),
    )
    typer.echo(f"{output}: {size(output.stat().st_size)}; open it in a browser")
