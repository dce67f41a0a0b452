"""Values of options that several commands have."""

from __future__ import annotations

import platform
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

TOLD = ("nmtdeep", "torch", "numpy", "safetensors", "sacremoses", "subword-nmt", "sacrebleu")


class Device(StrEnum):
    """Where the model runs."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Precision(StrEnum):
    """In what numbers the model runs."""

    AUTO = "auto"
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


class InputForm(StrEnum):
    """What the lines given to a model are."""

    RAW = "raw"
    TOKENIZED = "tokenized"
    BPE = "bpe"


_asked: list[bool] = []


def is_verbose() -> bool:
    """Whether the command was given -v."""
    return bool(_asked)


def _be_verbose(wanted: bool) -> bool:
    """Say the versions that a report of a fault should name."""
    if wanted:
        _asked.append(True)
        found = ", ".join(f"{name} {installed(name)}" for name in TOLD)
        typer.echo(
            f"nmtdeep {installed('nmtdeep')}, Python {platform.python_version()}, {found}",
            err=True,
        )
    return wanted


def installed(name: str) -> str:
    """The version of a package, or `missing`."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


Verbose = Annotated[
    bool,
    typer.Option(
        "-v",
        "--verbose",
        callback=_be_verbose,
        is_eager=True,
        help="Print versions, and a traceback with an error.",
    ),
]
