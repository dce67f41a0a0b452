"""Options of a search, which `nmtdeep translate` and `nmtdeep serve` share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nmtdeep.cli.choices import InputForm


class LongLines(StrEnum):
    """What happens to lines over the limit."""

    pieces = "split"
    truncate = "truncate"
    error = "error"


class Quantisation(StrEnum):
    """Whole numbers in the place of weights."""

    INT8 = "int8"


class LengthPenalty(StrEnum):
    """The divisor of a hypothesis' log-probability."""

    gnmt = "gnmt"
    length = "length"
    none = "none"


Models = Annotated[
    list[Path],
    typer.Option("-m", "--model", "--path", help="Run or checkpoint; several: an ensemble."),
]
Beam = Annotated[
    int | None,
    typer.Option(
        "-b", "--beam", "--beam-size", min=1, help="Beam size.", show_default="the recipe's"
    ),
]
Lenpen = Annotated[
    float | None,
    typer.Option(
        "--lenpen",
        "--length-penalty",
        "--alpha",
        min=0,
        help="A of the length penalty: gnmt ((5+len)/6)^A, length len^A.",
    ),
]
LenpenForm = Annotated[
    LengthPenalty | None, typer.Option(help="Which formula --lenpen belongs to.")
]
NBest = Annotated[
    int, typer.Option("--n-best", "--nbest", min=1, help="Translations of each line.")
]
InputIs = Annotated[
    InputForm | None, typer.Option(help="Input that is tokenised or BPE-split already.")
]
OutputIs = Annotated[
    InputForm, typer.Option(help="Text output: raw, tokenised words, or subwords.")
]
Sampling = Annotated[
    bool, typer.Option("--sampling", help="Draw from the model instead of searching.")
]
Temperature = Annotated[float, typer.Option(min=1e-3, help="Of --sampling.")]
TopK = Annotated[int, typer.Option(min=0, help="Of --sampling; 0: all tokens.")]
TopP = Annotated[float, typer.Option(min=1e-6, max=1.0, help="Of --sampling.")]
Seed = Annotated[int, typer.Option(min=0, help="Of --sampling.")]
OverLong = Annotated[
    LongLines, typer.Option(help="Lines over --max-source-tokens: in pieces, cut, or refused.")
]
MaxSourceTokens = Annotated[int | None, typer.Option(min=1, help="Longest source.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Padded source tokens times beam at once.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Precision = Annotated[str, typer.Option(help="auto (fp32), fp32, bf16 or fp16.")]
Quantize = Annotated[
    Quantisation | None, typer.Option(help="int8: weights in whole numbers, on a CPU.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads.")]
