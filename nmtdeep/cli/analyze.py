"""`nmtdeep analyze`: measurements of deep models, untrained, in training and trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from nmtdeep.cli.options import (
    METRIC,
    Data,
    Device,
    Overrides,
    Run,
    Runs,
    Threads,
    Verify,
    Whole,
    recipe_argument,
)
from nmtdeep.cli.outputs import Analysis, written
from nmtdeep.config.decoding import decoding_options
from nmtdeep.config.text import Form
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.checkpoint import Loaded

Tokens = Annotated[int, Option(min=1, help="Approximate number of target tokens to measure on.")]
Seed = Annotated[
    int | None, Option(help="Random seed for initialization, choice of sentences, dropout.")
]


def initialization(
    subject: Annotated[str, recipe_argument("RECIPE|RUN")],
    overrides: Overrides = None,
    *,
    data: Data,
    tokens: Tokens = 3000,
    seed: Seed = None,
    after: Annotated[int, Option(min=0)] = 0,
    device: Device = "auto",
    threads: Threads = None,
    verify: Verify = True,
) -> Analysis:
    """Print Var(r), beta_LN, beta_RC, beta and w/sigma of every kind of sublayer.

    The figures of Table 1 of Zhang et al. 2019 and Table 2 of Xu et al. 2020, in one pass over real
    sentences of the training corpus.

    Args:
        subject: A recipe, or a trained model.
        after: Updates of training before the measurement.
    """
    from nmtdeep.analysis.initialization import draw, measure, tables
    from nmtdeep.checkpoint import load
    from nmtdeep.config.load import load_recipe
    from nmtdeep.data.corpus import DataDirectory

    changes = [*(overrides or []), *_seed(seed)]
    is_run = Path(subject).is_dir()
    if is_run:
        _refuse_changes(subject, changes, after=after)
    model = load(Path(subject)) if is_run else load_recipe(subject, changes)
    corpora, place = DataDirectory.open(data, verify=verify), _device(device, threads)
    measurement = measure(subject, model, corpora, tokens=tokens, device=place, updates=after)
    return Analysis(measurement, tables, draw)


def gradients(
    subjects: Annotated[list[str], recipe_argument("RECIPE|KEY=VALUE|RUN")],
    *,
    data: Data,
    depths: str | None = None,
    of: Literal["parameters", "output"] = "parameters",
    tokens: Tokens = 3000,
    seed: Seed = None,
    device: Device = "auto",
    threads: Threads = None,
    verify: Verify = True,
) -> Analysis:
    """Print the gradient norm of every layer, as in Figures 1 and 4 of Zhang et al. 2019.

    Of a recipe: at its initialization, for several depths. Of a run: at its initialization and at
    every checkpoint that it kept. Of a checkpoint: as it is.

    Args:
        subjects: Recipes, and values to change in all of them; or runs or checkpoints.
        depths: Numbers of layers; each recipe is measured with each of them. Default: 6,12,18,20.
        of: Quantity that the gradient is for.
    """
    from nmtdeep.analysis.gradients import draw, measure, tables
    from nmtdeep.data.corpus import DataDirectory

    names = [word for word in subjects if "=" not in word or Path(word).is_dir()]
    changes = [word for word in subjects if word not in names] + _seed(seed)
    runs = [name for name in names if Path(name).is_dir()]
    models: list[tuple[str, Any]] = [(run, Path(run)) for run in runs]
    if not runs:
        models = _at_depths(names, changes, depths or "6,12,18,20")
    elif len(runs) < len(names):
        other = next(name for name in names if name not in runs)
        hint = "give either runs or recipes, not both"
        raise UserError("is not a run directory", where=other, hint=hint)
    else:
        _refuse_changes(names[0], changes, depths=depths)
    corpora, place = DataDirectory.open(data, verify=verify), _device(device, threads)
    say = partial(typer.echo, err=True)
    measurement = measure(models, corpora, tokens=tokens, device=place, of=of, say=say)
    return Analysis(measurement, tables, draw)


def schedule(
    subjects: Annotated[list[str], recipe_argument("RECIPE|KEY=VALUE")],
    *,
    updates_per_epoch: Whole | None = None,
) -> Analysis:
    """Print the learning rates of recipes, stage by stage, as in Figure 5 of Li et al. 2020.

    Args:
        subjects: Recipes, or runs with theirs, and values to change in all of them.
        updates_per_epoch: Updates of an epoch, if the recipe counts epochs.
    """
    from nmtdeep.analysis.schedule import draw, measure, tables
    from nmtdeep.config.load import load_recipe

    names = [word for word in subjects if "=" not in word]
    changes = [word for word in subjects if "=" in word]
    files = {name: f"{name}/config.yaml" if Path(name).is_dir() else name for name in names}
    if not names:
        raise UserError("no recipe given", hint="name one, such as multi30k-en-de")
    recipes = {name: load_recipe(file, changes) for name, file in files.items()}
    return Analysis(measure(recipes, updates_per_epoch), tables, draw)


def combination(model: Run) -> Analysis:
    """Print the learned weights with which each layer of a trained model reads those below it.

    Those of DLCL, dense and sparse connections and of transparent attention, as in Figure 5 of Wang
    et al. 2019.
    """
    from nmtdeep.analysis.combination import draw, measure, tables
    from nmtdeep.checkpoint import load

    return Analysis(measure(str(model), load(model)), tables, draw)


def similarity(
    models: Runs,
    *,
    data: Data,
    split: str = "valid",
    device: Device = "auto",
    threads: Threads = None,
    verify: Verify = True,
) -> Analysis:
    """Print the similarity of each encoder layer's output to the embedding, to the layer below, and
    across positions.

    Figures 2, 7 and 8 of Li et al. 2020, over a validation set.

    Args:
        split: Set of --data to measure on.
    """
    from nmtdeep.analysis.similarity import draw, measure, tables
    from nmtdeep.data.corpus import DataDirectory

    corpora = DataDirectory.open(data, verify=verify)
    return Analysis(measure(_loaded(models, device, threads), corpora, split), tables, draw)


def attention(
    model: Run,
    *,
    source: str,
    target: str | None = None,
    of: Literal["cross", "encoder", "decoder"] = "cross",
    layer: str = "mean",
    head: str = "mean",
    input_is: Form | None = None,
    device: Device = "auto",
    threads: Threads = None,
) -> Analysis:
    """Print the attention of a model in a sentence pair, subword by subword.

    Args:
        source: Source sentence.
        target: Translation of --source. Default: the model's translation.
        of: Attention of the decoder to the encoder, or of a stack to itself.
        layer: Number of a layer, from 1; or mean, all.
        head: Number of a head, from 1; or mean, all.
        input_is: Form of the sentences. Default: the recipe's.
    """
    from nmtdeep.analysis.attention import draw, measure, tables

    loaded = _loaded([model], device, threads)[str(model)]
    texts = source, target, input_is
    measurement = measure(str(model), loaded, *texts, of=of, layer=layer, head=head)
    return Analysis(measurement, tables, draw)


def lengths(
    systems: Annotated[list[Path], Argument(metavar="SYSTEM")],
    *,
    source: Path,
    reference: Path,
    metric: Annotated[str, METRIC] = "bleu",
    device: Device = "auto",
    threads: Threads = None,
) -> Analysis:
    """Print scores by the length of the source: 1-10, 11-20, ... words.

    Args:
        systems: Files with translations of --source, or runs or checkpoints that translate it.
        source: Source text; .gz allowed.
        reference: Reference translation of --source.
        metric: Metric of `nmtdeep score`.
    """
    from nmtdeep.scoring.metrics import metric_named

    metric_named(metric)
    from nmtdeep.analysis.lengths import draw, measure, tables
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.scoring.texts import read_text

    texts = read_text(source), read_text(reference)
    options = decoding_options({"device": device, "threads": threads})
    translations: dict[str, Sequence[str]] = {}
    for system in _distinct(systems):
        if system.is_dir():
            lines = Translator.load([system], options).translate(texts[0].lines)
            translations[str(system)] = [line.text for line in lines]
        else:
            translations[str(system)] = read_text(system).lines
    return Analysis(measure(*texts, translations, metric), tables, draw)


ANALYSES: dict[Callable[..., Analysis], str] = {
    schedule: "demo training.schedule.lr=0.002",
    initialization: "demo --data data",
    gradients: "demo --data data --depths 6,12",
    combination: "run --plot weights.svg",
    similarity: "run other-run --data data",
    attention: 'run --source "Two men play the guitar."',
    lengths: "run --source test.en --reference test.de",
}
COMMANDS = {
    written(analysis): f"nmtdeep analyze {analysis.__name__} {words}"
    for analysis, words in ANALYSES.items()
}


def _at_depths(names: Iterable[str], changes: list[str], depths: str) -> list[tuple[str, Any]]:
    """Each recipe at each depth, such as `6,12`."""
    from nmtdeep.config.load import load_recipe

    numbers = [word.strip() for word in depths.split(",")]
    if not all(number.isdecimal() and int(number) for number in numbers):
        hint = "separate numbers by commas, such as 6,12,18"
        raise UserError("not a list of numbers", where=f"--depths {depths}", hint=hint)
    keys = ("model.encoder.depth", "model.decoder.depth")
    return [
        (name, load_recipe(name, [*changes, *(f"{key}={int(number)}" for key in keys)]))
        for name in names
        for number in numbers
    ]


def _refuse_changes(name: str, changes: list[str], **options: object) -> None:
    """A trained model is measured as it is."""
    if given := [*changes, *(f"--{option}" for option, value in options.items() if value)]:
        what = f"a trained model cannot be changed by {', '.join(given)}"
        raise UserError(what, where=name, hint="leave it out, or give a recipe")


def _seed(seed: int | None) -> list[str]:
    return [] if seed is None else [f"training.seed={seed}"]


def _device(device: str, threads: int | None) -> Any:
    import torch

    from nmtdeep.devices import resolve_device

    torch.set_num_threads(threads or torch.get_num_threads())
    return resolve_device(device)


def _loaded(models: Iterable[Path], device: str, threads: int | None) -> dict[str, Loaded]:
    """Models by the names that the user gave."""
    from nmtdeep.checkpoint import load

    place = _device(device, threads)
    loaded = {str(path): load(path) for path in _distinct(models)}
    for each in loaded.values():
        each.model.to(place)
    return loaded


def _distinct(paths: Iterable[Path]) -> list[Path]:
    paths = list(paths)
    for path in paths:
        if paths.count(path) > 1:
            raise UserError("is named twice", where=path, hint="name each once")
    return paths
