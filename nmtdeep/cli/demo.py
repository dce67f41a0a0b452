"""`nmtdeep demo`: a training of minutes."""

from __future__ import annotations

from pathlib import Path

from nmtdeep.cli import options
from nmtdeep.files import check_place


def demo(
    *,
    out: options.Out = Path("nmtdeep-demo"),
    device: options.Device = "auto",
    threads: options.Threads = None,
) -> None:
    """Train a deep model on a small corpus that ships with the program, in minutes.

    Args:
        out: Directory for data and run.
    """
    check_place(out, "--out")
    options.prepare_training(threads)
    from nmtdeep.tools.demo import run_demo

    run_demo(out, threads=threads, device=device)
