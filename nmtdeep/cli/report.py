"""`nmtdeep report`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import typer
from typer import Argument, Option

from nmtdeep.cli.options import Device, Threads
from nmtdeep.errors import UserError


def report(
    runs: list[Path] = Argument(
        ..., metavar="RUN", help="Run directories; the others are compared with the first."
    ),
    output: Path = Option(Path("report.html"), "-o", "--output", help="Page to write."),
    data: Path | None = Option(
        None, help="Data directory: also translate a test set and look into the models."
    ),
    split: str | None = Option(
        None, help="Set of --data to translate.", show_default="the first test set, or valid"
    ),
    samples: int = Option(10, min=1, help="Number of translations to show."),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Write one page about runs that any browser shows: scores, curves, translations, pictures.

    The page loads nothing from the network, so it can be sent and kept as it is.
    """
    if split and not data:
        raise UserError("needs a data directory", where=f"--split {split}", hint="add --data")
    where = f"--output {output}"
    if output.is_dir():
        raise UserError("is a directory", where=where, hint="name a file, such as report.html")
    if not output.parent.is_dir():
        raise UserError(f"there is no directory {output.parent}", where=where, hint="create it")
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        hint = 'pip install "nmtdeep[report]"'
        raise UserError(f"a report needs {' and '.join(missing)}: not installed", hint=hint)
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
