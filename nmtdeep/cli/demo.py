"""`nmtdeep demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmtdeep.cli.choices import Verbose
from nmtdeep.files import check_place


def demo(
    out: Annotated[Path, typer.Option("--out", help="Directory for data and run.")] = Path(
        "nmtdeep-demo"
    ),
    threads: Annotated[int | None, typer.Option(min=1, help="Number of CPU threads.")] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")] = "auto",
    verbose: Verbose = False,
) -> None:
    """Train a deep model on a small corpus that ships with the program, in minutes."""
    check_place(out, "--out")
    from nmtdeep.demo.journey import run_demo

    run_demo(out, threads=threads, device=device)
