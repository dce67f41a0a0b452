"""`nmtdeep analyze` of trained models: combinations, similarities, attention, lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtdeep.cli import completion
from nmtdeep.cli.choices import InputForm, Verbose
from nmtdeep.cli.command import Command
from nmtdeep.cli.outputs import Csv, Json, Plot, check_plot, give
from nmtdeep.config.decoding import decoding_options
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.checkpoint import Loaded

Model = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory or checkpoint.")]
DeviceName = Annotated[str, typer.Option("--device", help="Device: auto, cpu, cuda or cuda:N.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of CPU threads.")]


class Attention(StrEnum):
    """Who attends to what."""

    CROSS = "cross"
    ENCODER = "encoder"
    DECODER = "decoder"


def combination(
    model: Model,
    layer: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Draw the weights of this layer's output along the stack (0: embedding); a third "
            "of the way up if not given.",
        ),
    ] = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Print what each layer of a trained model reads of those below it: its learned weights.

    Those of DLCL, dense and sparse connections and of transparent attention, as in Figure 5 of Wang
    et al. 2019.
    """
    check_plot(plot)
    from nmtdeep.analysis.combination import draw, measure, tables
    from nmtdeep.checkpoint import load

    measurement = measure(str(model), load(model), layer)
    give(measurement, tables, partial(draw, layer=layer), csv=csv, plot=plot, as_json=as_json)


def similarity(
    models: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run directories or checkpoints.")
    ],
    data: Annotated[Path, typer.Option(help="The data directory that they were trained on.")],
    split: Annotated[str, typer.Option(help="Which sentences of it.")] = "valid",
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
    device: DeviceName = "auto",
    threads: Threads = None,
    verbose: Verbose = False,
) -> None:
    """Print how like each encoder layer's output is to the embedding, the layer below and itself.

    Figures 2, 7 and 8 of Li et al. 2020, over a validation set.
    """
    check_plot(plot)
    from nmtdeep.analysis.similarity import draw, measure, tables
    from nmtdeep.data.corpus import DataDirectory

    corpora = DataDirectory.open(data)
    measurement = measure(_loaded(models, device, threads), corpora, split)
    give(measurement, tables, draw, csv=csv, plot=plot, as_json=as_json)


def attention(
    model: Model,
    source: Annotated[str, typer.Option(help="A sentence.")],
    target: Annotated[
        str | None, typer.Option(help="Its translation; the model's own if not given.")
    ] = None,
    of: Annotated[
        Attention,
        typer.Option(help="Decoder to encoder, or a stack to itself."),
    ] = Attention.CROSS,
    layer: Annotated[str, typer.Option(help="A number from 1, mean or all.")] = "mean",
    head: Annotated[str, typer.Option(help="A number from 1, mean or all.")] = "mean",
    input_is: Annotated[
        InputForm | None, typer.Option(help="The sentences are tokenized or split already.")
    ] = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
    device: DeviceName = "auto",
    threads: Threads = None,
    verbose: Verbose = False,
) -> None:
    """Print what a model attends to in a sentence pair, subword by subword."""
    check_plot(plot)
    from nmtdeep.analysis.attention import draw, measure, sentence_pair, tables

    loaded = _loaded([model], device, threads)[str(model)]
    pair = sentence_pair(loaded, source, target, input_is.value if input_is else None)
    measurement = measure(str(model), loaded, pair, of=of.value, layer=layer, head=head)
    give(measurement, tables, draw, csv=csv, plot=plot, as_json=as_json)


def lengths(
    systems: Annotated[
        list[Path],
        typer.Argument(
            metavar="SYSTEM",
            help="Translations of --source in a file each; or runs or checkpoints to make them.",
        ),
    ],
    source: Annotated[Path, typer.Option(help="What is translated; .gz allowed.")],
    reference: Annotated[Path, typer.Option(help="What it should be.")],
    metric: Annotated[
        str, typer.Option(help="A metric of `nmtdeep score`.", autocompletion=completion.metrics)
    ] = "bleu",
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
    device: DeviceName = "auto",
    threads: Threads = None,
    verbose: Verbose = False,
) -> None:
    """Print scores by the length of the source: 1-10, 11-20, ... words."""
    check_plot(plot)
    from nmtdeep.scoring.metrics import metric_named

    metric_named(metric)
    from nmtdeep.analysis.lengths import draw, measure, tables
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.scoring.texts import read_text

    texts = read_text(source), read_text(reference)
    found = {}
    for system in _distinct(systems):
        if system.is_dir():
            translator = Translator.load(
                [system], decoding_options({"device": device, "threads": threads})
            )
            found[str(system)] = [one.text for one in translator.translate(texts[0].lines)]
        else:
            found[str(system)] = read_text(system).lines
    measurement = measure(*texts, found, metric)
    give(measurement, tables, draw, csv=csv, plot=plot, as_json=as_json)


def _loaded(models: Iterable[Path], device: str, threads: int | None) -> dict[str, Loaded]:
    """Models by the name that they were given under."""
    import torch

    from nmtdeep.checkpoint import load
    from nmtdeep.devices import resolve_device

    torch.set_num_threads(threads or torch.get_num_threads())
    loaded = {str(path): load(path) for path in _distinct(models)}
    for one in loaded.values():
        one.model.to(resolve_device(device))
    return loaded


def _distinct(paths: Iterable[Path]) -> list[Path]:
    found = list(paths)
    for path in found:
        if found.count(path) > 1:
            raise UserError(f"{path} is named twice: name each once")
    return found


def register(app: typer.Typer) -> None:
    """Make these subcommands of `app`."""
    examples: dict[Callable[..., None], str] = {
        combination: "nmtdeep analyze combination run --plot weights.svg",
        similarity: "nmtdeep analyze similarity run other-run --data data",
        attention: 'nmtdeep analyze attention run --source "Two men play the guitar."',
        lengths: "nmtdeep analyze lengths run --source test.en --reference test.de",
    }
    for command, example in examples.items():
        app.command(command.__name__, cls=Command, no_args_is_help=True, epilog=example)(command)
