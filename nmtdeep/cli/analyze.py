"""`nmtdeep analyze`: what a model's start promises, before it is trained."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from nmtdeep.cli.choices import Verbose
from nmtdeep.errors import UserError

app = typer.Typer(
    help="Measure a model at its start: residual sums, norms, gradients.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Of(StrEnum):
    """With respect to what a layer's gradient is taken."""

    PARAMETERS = "parameters"
    OUTPUT = "output"


Data = Annotated[Path, typer.Option(help="Directory that `nmtdeep preprocess` wrote.")]
Tokens = Annotated[int, typer.Option(min=1, help="Target tokens to measure on, about.")]
Seed = Annotated[
    int | None, typer.Option(help="Of initialisation, choice of sentences and dropout.")
]
After = Annotated[int, typer.Option(min=0, help="Updates of training before the measurement.")]
Csv = Annotated[Path | None, typer.Option("--csv", help="Write every layer's row to this file.")]
DeviceName = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads.")]


@app.command("initialisation", no_args_is_help=True)
def initialisation(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name or file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Recipe values to change.")
    ] = None,
    *,
    data: Data,
    tokens: Tokens = 3000,
    seed: Seed = None,
    after: After = 0,
    layers: Annotated[bool, typer.Option("--layers", help="A row for each layer.")] = False,
    csv: Csv = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object with everything.")] = False,
    device: DeviceName = "auto",
    threads: Threads = None,
    verbose: Verbose = False,
) -> None:
    """Print Var(r), beta_LN, beta_RC, beta and w/sigma of every kind of sublayer.

    The figures of Table 1 of Zhang et al. 2019 and Table 2 of Xu et al. 2020, in one pass over real
    sentences of the training corpus.
    """
    from nmtdeep.config.load import load_recipe

    chosen = load_recipe(recipe, [*(overrides or []), *_seed(seed)])
    import torch
    from rich.console import Console

    from nmtdeep.analysis import rendering
    from nmtdeep.analysis.initialisation import averaged, measure
    from nmtdeep.analysis.probe import conditions, prepare
    from nmtdeep.data.corpus import DataDirectory
    from nmtdeep.decoding.settings import resolve_device

    torch.set_num_threads(threads or torch.get_num_threads())
    corpora, place = DataDirectory.open(data), resolve_device(device)
    probe = prepare(chosen, corpora, tokens=tokens, device=place, updates=after)
    made = conditions(recipe, chosen, corpora, probe, after)
    blocks = measure(probe, chosen.model)
    averages = averaged(blocks)
    if csv:
        rendering.write_csv(blocks, csv)
    if as_json:
        typer.echo(json.dumps(rendering.record(blocks, averages, made), indent=2))
        return
    console = Console()
    if layers:
        console.print(rendering.table(blocks))
    console.print(rendering.table(averages))
    typer.echo(str(made))


@app.command("gradients", no_args_is_help=True)
def gradients(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE... [KEY=VALUE]...",
            help="Recipes, and values to change in all of them.",
        ),
    ],
    *,
    data: Data,
    depths: Annotated[
        str, typer.Option(help="Layers of encoder and decoder, one model for each number.")
    ] = "6,12,18,20",
    of: Annotated[Of, typer.Option(help="What the gradient is taken of.")] = Of.PARAMETERS,
    tokens: Tokens = 3000,
    seed: Seed = None,
    csv: Csv = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the curves into this file: .svg, .png or .pdf.")
    ] = None,
    device: DeviceName = "auto",
    threads: Threads = None,
    verbose: Verbose = False,
) -> None:
    """Print the gradient norm of every layer at its start, as in Figure 1 of Zhang et al. 2019."""
    from nmtdeep.config.load import load_recipe

    if plot and plot.suffix not in (".svg", ".png", ".pdf"):
        raise UserError(f"--plot {plot}: give a file that ends in .svg, .png or .pdf")
    if plot and find_spec("matplotlib") is None:
        raise UserError(
            f"--plot {plot} needs matplotlib, which is not here: pip install matplotlib, or leave "
            "--plot out"
        )
    names = [word for word in recipes if "=" not in word]
    changes = [word for word in recipes if "=" in word] + _seed(seed)
    models = [
        (
            name,
            load_recipe(name, [*changes, f"model.encoder.depth={n}", f"model.decoder.depth={n}"]),
        )
        for name in names
        for n in _numbers(depths)
    ]
    import torch

    from nmtdeep.analysis.gradients import curves, write_csv
    from nmtdeep.data.corpus import DataDirectory
    from nmtdeep.decoding.settings import resolve_device

    torch.set_num_threads(threads or torch.get_num_threads())
    corpora, place = DataDirectory.open(data), resolve_device(device)
    points = []
    for name, recipe in models:
        found, made = curves(name, recipe, corpora, tokens=tokens, device=place, of=of.value)
        points += found
        for side in ("encoder", "decoder"):
            norms = " ".join(f"{one.gradient_norm:.3g}" for one in found if one.side == side)
            typer.echo(f"{name} {recipe.model.encoder.depth} layers, {side}: {norms}")
        typer.echo(str(made))
    if csv:
        write_csv(points, csv)
    if plot:
        from nmtdeep.analysis.picture import draw

        draw(points, plot)


def _seed(seed: int | None) -> list[str]:
    return [] if seed is None else [f"training.seed={seed}"]


def _numbers(text: str) -> list[int]:
    """`6,12` to numbers; UserError if they are none."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) for word in words):
        raise UserError(f"--depths {text}: give numbers with commas between them, such as 6,12,18")
    return [int(word) for word in words]
