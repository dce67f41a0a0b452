"""`nmtdeep analyze`: what a deep model does, at its start, in training and afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from nmtdeep.cli import analyze_trained, completion
from nmtdeep.cli.choices import Verbose
from nmtdeep.cli.command import HELP, Command, Group
from nmtdeep.cli.outputs import Csv, Json, Plot, check_plot, give
from nmtdeep.errors import UserError

app = typer.Typer(
    cls=Group,
    help="Measure a model: its start, gradients, layers, attention, learning rates, scores.",
    no_args_is_help=True,
    context_settings=HELP,
    epilog="nmtdeep analyze schedule demo",
)


class Of(StrEnum):
    """With respect to what a layer's gradient is taken."""

    PARAMETERS = "parameters"
    OUTPUT = "output"


Data = Annotated[Path, typer.Option(help="Directory that `nmtdeep preprocess` wrote.")]
Tokens = Annotated[
    int, typer.Option(min=1, help="Approximate number of target tokens to measure on.")
]
Seed = Annotated[
    int | None, typer.Option(help="Random seed of initialization, choice of sentences and dropout.")
]
After = Annotated[int, typer.Option(min=0, help="Updates of training before the measurement.")]
DeviceName = Annotated[str, typer.Option("--device", help="Device: auto, cpu, cuda or cuda:N.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of CPU threads.")]
DEPTHS = "6,12,18,20"


@app.command(
    "initialization",
    cls=Command,
    no_args_is_help=True,
    epilog="nmtdeep analyze initialization demo --data data",
)
def initialization(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|RUN",
            help="A recipe; or a trained model, as it is.",
            autocompletion=completion.recipes,
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Recipe values to change.")
    ] = None,
    *,
    data: Data,
    tokens: Tokens = 3000,
    seed: Seed = None,
    after: After = 0,
    layers: Annotated[bool, typer.Option("--layers", help="Print a row for each layer.")] = False,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
    device: DeviceName = "auto",
    threads: Threads = None,
    verbose: Verbose = False,
) -> None:
    """Print Var(r), beta_LN, beta_RC, beta and w/sigma of every kind of sublayer.

    The figures of Table 1 of Zhang et al. 2019 and Table 2 of Xu et al. 2020, in one pass over real
    sentences of the training corpus.
    """
    from nmtdeep.config.load import load_recipe

    check_plot(plot)
    changes = [*(overrides or []), *_seed(seed)]
    trained = Path(subject).is_dir()
    if trained:
        _refuse_changes(subject, changes, {"--after": after})
    recipe = None if trained else load_recipe(subject, changes)
    import torch

    from nmtdeep.analysis.initialization import draw, measure, tables
    from nmtdeep.checkpoint import load
    from nmtdeep.data.corpus import DataDirectory
    from nmtdeep.devices import resolve_device

    torch.set_num_threads(threads or torch.get_num_threads())
    corpora, place = DataDirectory.open(data), resolve_device(device)
    measurement = measure(
        subject,
        recipe or load(Path(subject)),
        corpora,
        tokens=tokens,
        device=place,
        updates=after,
    )
    give(measurement, partial(tables, layers=layers), draw, csv=csv, plot=plot, as_json=as_json)


@app.command(
    "gradients",
    cls=Command,
    no_args_is_help=True,
    epilog="nmtdeep analyze gradients demo --data data --depths 6,12",
)
def gradients(
    subjects: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE|KEY=VALUE|RUN",
            help="Recipes, and values to change in all of them; or runs or checkpoints.",
            autocompletion=completion.recipes,
        ),
    ],
    *,
    data: Data,
    depths: Annotated[
        str | None,
        typer.Option(
            help="Layers of encoder and decoder of recipes, one model for each number.",
            show_default=DEPTHS,
        ),
    ] = None,
    of: Annotated[Of, typer.Option(help="What the gradient is taken of.")] = Of.PARAMETERS,
    tokens: Tokens = 3000,
    seed: Seed = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
    device: DeviceName = "auto",
    threads: Threads = None,
    verbose: Verbose = False,
) -> None:
    """Print the gradient norm of every layer, as in Figures 1 and 4 of Zhang et al. 2019.

    Of recipes: at their start, for several depths. Of runs: at their start and at every checkpoint
    that they kept. Of a checkpoint: as it is.
    """
    check_plot(plot)
    names = [word for word in subjects if "=" not in word or Path(word).is_dir()]
    changes = [word for word in subjects if word not in names] + _seed(seed)
    runs = [Path(name) for name in names if Path(name).is_dir()]
    if runs and len(runs) < len(names):
        other = next(name for name in names if not Path(name).is_dir())
        raise UserError(f"{other} is no directory of a run: give either runs or recipes, not both")
    models: list[tuple[str, Any]] = [(str(run), run) for run in runs]
    if runs:
        _refuse_changes(names[0], changes, {"--depths": depths})
    else:
        models = _at_depths(names, changes, _numbers(depths or DEPTHS))
    import torch

    from nmtdeep.analysis.gradients import draw, measure, tables
    from nmtdeep.data.corpus import DataDirectory
    from nmtdeep.devices import resolve_device

    torch.set_num_threads(threads or torch.get_num_threads())
    measurement = measure(
        models,
        DataDirectory.open(data),
        tokens=tokens,
        device=resolve_device(device),
        of=of.value,
        say=(lambda line: None) if as_json else partial(typer.echo, err=True),
    )
    give(measurement, tables, draw, csv=csv, plot=plot, as_json=as_json)


@app.command(
    "schedule",
    cls=Command,
    no_args_is_help=True,
    epilog="nmtdeep analyze schedule demo training.schedule.lr=0.002",
)
def schedule(
    subjects: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE|KEY=VALUE",
            help="Recipes, or runs for theirs, and values to change in all of them.",
            autocompletion=completion.recipes,
        ),
    ],
    updates_per_epoch: Annotated[
        int | None, typer.Option(min=1, help="Updates in an epoch, where the recipe counts epochs.")
    ] = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Print the learning rates of recipes, stage by stage, as in Figure 5 of Li et al. 2020."""
    from nmtdeep.config.load import load_recipe

    check_plot(plot)
    names = [word for word in subjects if "=" not in word]
    changes = [word for word in subjects if "=" in word]
    files = {name: f"{name}/config.yaml" if Path(name).is_dir() else name for name in names}
    recipes = {name: load_recipe(file, changes) for name, file in files.items()}
    if not recipes:
        raise UserError("no recipe given: name one, such as multi30k-en-de")

    from nmtdeep.analysis.schedule import draw, measure, tables

    measurement = measure(recipes, updates_per_epoch)
    give(measurement, tables, draw, csv=csv, plot=plot, as_json=as_json)


def _at_depths(
    names: Iterable[str], changes: list[str], depths: Sequence[int]
) -> list[tuple[str, Any]]:
    """Each recipe at each depth."""
    from nmtdeep.config.load import load_recipe

    return [
        (
            name,
            load_recipe(name, [*changes, f"model.encoder.depth={n}", f"model.decoder.depth={n}"]),
        )
        for name in names
        for n in depths
    ]


def _refuse_changes(name: str, changes: list[str], options: Mapping[str, object]) -> None:
    """A trained model is as it is."""
    given = [*changes, *(option for option, value in options.items() if value)]
    if given:
        raise UserError(
            f"{name} is a trained model and is measured as it is: leave {', '.join(given)} out, or "
            "give its recipe"
        )


def _seed(seed: int | None) -> list[str]:
    return [] if seed is None else [f"training.seed={seed}"]


def _numbers(text: str) -> list[int]:
    """`6,12` to numbers; UserError if they are none."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) for word in words):
        raise UserError(f"--depths {text}: give numbers with commas between them, such as 6,12,18")
    return [int(word) for word in words]


analyze_trained.register(app)
