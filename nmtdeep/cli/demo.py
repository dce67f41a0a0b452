"""`nmtdeep demo`."""

from __future__ import annotations

from pathlib import Path

from typer import Option

from nmtdeep.cli.options import Device, Threads
from nmtdeep.files import check_place


def demo(
    out: Path = Option(Path("nmtdeep-demo"), help="Directory for data and run."),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a deep model on a small corpus that ships with the program, in minutes."""
    check_place(out, "--out")
    from nmtdeep.demo.journey import run_demo

    run_demo(out, threads=threads, device=device)
