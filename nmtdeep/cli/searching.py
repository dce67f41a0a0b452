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


class Quantization(StrEnum):
    """Whole numbers in the place of weights."""

    INT8 = "int8"


class LengthPenalty(StrEnum):
    """The divisor of a hypothesis' log-probability."""

    gnmt = "gnmt"
    length = "length"
    none = "none"


Models = Annotated[
    list[Path],
    typer.Option("-m", "--model", "--path", help="Run or checkpoint; several are an ensemble."),
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
        help="Exponent A of the length penalty: gnmt ((5+len)/6)^A, length len^A.",
        show_default="the recipe's",
    ),
]
LenpenForm = Annotated[
    LengthPenalty | None,
    typer.Option(help="Formula of the length penalty.", show_default="the recipe's"),
]
NBest = Annotated[
    int, typer.Option("--n-best", "--nbest", min=1, help="Number of translations of each line.")
]
InputIs = Annotated[
    InputForm | None,
    typer.Option(
        help="The input is raw, or already tokenized or BPE-split.", show_default="the recipe's"
    ),
]
OutputIs = Annotated[
    InputForm, typer.Option(help="Translations as raw text, tokenized words or subwords.")
]
Sampling = Annotated[
    bool, typer.Option("--sampling", help="Draw translations at random instead of searching.")
]
Temperature = Annotated[float, typer.Option(min=1e-3, help="Softmax temperature of --sampling.")]
TopK = Annotated[
    int,
    typer.Option(metavar="K", min=0, help="--sampling from the K most probable tokens; 0: all."),
]
TopP = Annotated[
    float,
    typer.Option(min=1e-6, max=1.0, help="--sampling from the tokens that hold this probability."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed of --sampling.")]
OverLong = Annotated[
    LongLines,
    typer.Option(help="Lines over --max-source-tokens are translated in pieces, cut, or an error."),
]
MaxSourceTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Longest source line, in subwords.", show_default="the recipe's"),
]
MaxLengthFactor = Annotated[
    float | None,
    typer.Option(
        metavar="A",
        min=0,
        help="A translation has at most A times the source's subwords plus B.",
        show_default="the recipe's",
    ),
]
MaxLengthConstant = Annotated[
    int | None,
    typer.Option(
        metavar="B",
        min=1,
        help="A translation has at most A times the source's subwords plus B.",
        show_default="the recipe's",
    ),
]
MaxTokens = Annotated[int, typer.Option(min=1, help="Batch size: padded source tokens times beam.")]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")]
Precision = Annotated[str, typer.Option(help="Number format: auto (fp32), fp32, bf16 or fp16.")]
Quantize = Annotated[
    Quantization | None, typer.Option(help="Store weights as 8-bit integers, on a CPU.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of CPU threads.")]
