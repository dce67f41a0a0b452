"""`nmtdeep analyze`: measurements of deep models, untrained, in training and trained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from nmtdeep.cli import options
from nmtdeep.cli.command import bundle
from nmtdeep.cli.outputs import WrittenTo
from nmtdeep.config.text import Form
from nmtdeep.errors import UserError

SUBJECT = Argument(metavar="RECIPE|RUN", autocompletion=options.complete_recipe)
SUBJECTS = Argument(metavar="RECIPE|KEY=VALUE|RUN", autocompletion=options.complete_subject)
RECIPES = Argument(metavar="RECIPE|KEY=VALUE", autocompletion=options.complete_subject)
Tokens = Annotated[int, Option(min=1, help="Approximate number of target tokens to measure on.")]


def open_data(*, data: options.Data, verify: options.Verify = True) -> Any:
    """The data directory of --data."""
    from nmtdeep.data.corpus import DataDirectory

    return DataDirectory.open(data, verify=verify)


Corpora = Annotated[Any, bundle(open_data)]


def initialization(
    subject: Annotated[str, SUBJECT],
    overrides: options.Overrides = None,
    *,
    outputs: WrittenTo,
    corpora: Corpora,
    tokens: Tokens = 3000,
    device: options.Place,
) -> None:
    """Print Var(r), beta_LN, beta_RC, beta and w/sigma of every kind of sublayer.

    The figures of Table 1 of Zhang et al. 2019 and Table 2 of Xu et al. 2020, in one pass over real
    sentences of the training corpus.

    Args:
        subject: A recipe, or a trained model.
    """
    from nmtdeep.analysis.initialization import measure
    from nmtdeep.analysis.probe import ProbeText
    from nmtdeep.checkpoint import load_model
    from nmtdeep.config.load import load_recipe

    is_run = Path(subject).is_dir()
    if is_run:
        _refuse(subject, overrides or [])
    model = load_model(Path(subject)) if is_run else load_recipe(subject, overrides or [])
    outputs.write(measure(subject, model, ProbeText(corpora, tokens, device)))


def gradients(
    subjects: Annotated[list[str], SUBJECTS],
    *,
    outputs: WrittenTo,
    corpora: Corpora,
    depths: str | None = None,
    of: Literal["parameters", "output"] = "parameters",
    tokens: Tokens = 3000,
    device: options.Place,
) -> None:
    """Print the gradient norm of every layer, as in Figures 1 and 4 of Zhang et al. 2019.

    Of a recipe: at its initialization, for several depths. Of a run: at its initialization and at
    every checkpoint that it kept. Of a checkpoint: as it is.

    Args:
        subjects: Recipes, and values to change in all of them; or runs or checkpoints.
        depths: Numbers of layers; each recipe is measured with each of them. Default: 6,12,18,20.
        of: Quantity with respect to which the gradient is taken.
    """
    from nmtdeep.analysis.gradients import measure
    from nmtdeep.analysis.probe import ProbeText
    from nmtdeep.config.load import load_recipe

    names, changes = _names_and_changes(subjects)
    models: list[tuple[str, Any]] = [(name, Path(name)) for name in names if Path(name).is_dir()]
    if models:
        others = [name for name in names if not Path(name).is_dir()]
        _refuse(models[0][0], [*others, *changes, *(["--depths"] if depths else [])])
    else:
        numbers = (depths or "6,12,18,20").split(",")
        if not all(number.strip().isdecimal() for number in numbers):
            what = f"must be numbers with commas between them, not {depths!r}"
            raise UserError(what, where="--depths", hint="pass some such as 6,12")
        for name, depth in product(names, numbers):
            both = [f"model.encoder.depth={depth}", f"model.decoder.depth={depth}"]
            models.append((name, load_recipe(name, [*changes, *both])))
    say = partial(typer.echo, err=True)
    outputs.write(measure(models, ProbeText(corpora, tokens, device), of=of, say=say))


def learning_rate(
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    *,
    outputs: WrittenTo,
    data: options.Data,
    device: options.Place,
) -> None:
    """Suggest a learning rate: 200 updates with a rising rate, on a copy that is thrown away.

    The learning-rate range test of Smith 2017.
    """
    from nmtdeep.analysis.range_test import measure
    from nmtdeep.config.load import resolve
    from nmtdeep.data.corpus import DataDirectory

    corpora = DataDirectory.open(data, verify=False)
    text = corpora.pipeline.config.model_dump(mode="json")
    outputs.write(measure(resolve(recipe, overrides or [], text).recipe, corpora, device))


def schedule(
    subjects: Annotated[list[str], RECIPES],
    *,
    outputs: WrittenTo,
    updates_per_epoch: options.OptionalWhole = None,
) -> None:
    """Print the learning rates of recipes, stage by stage, as in Figure 5 of Li et al. 2020.

    Args:
        subjects: Recipes, or runs that have one, and values to change in all of them.
        updates_per_epoch: Updates of an epoch, if the recipe counts epochs.
    """
    from nmtdeep.analysis.schedule import measure
    from nmtdeep.config.load import load_recipe

    names, changes = _names_and_changes(subjects)
    runs = {name: Path(name) for name in names if Path(name).is_dir()}
    files = {name: f"{name}/config.yaml" if name in runs else name for name in names}
    recipes = {name: load_recipe(file, changes) for name, file in files.items()}
    outputs.write(measure(recipes, updates_per_epoch, runs))


def combination(model: options.Run, *, outputs: WrittenTo) -> None:
    """Print the learned weights with which each layer of a trained model reads those below it.

    Those of DLCL, dense and sparse connections and of transparent attention, as in Figure 5 of Wang
    et al. 2019.
    """
    from nmtdeep.analysis.combination import measure
    from nmtdeep.checkpoint import load_model

    outputs.write(measure(str(model), load_model(model)))


def similarity(
    models: options.Runs,
    *,
    outputs: WrittenTo,
    corpora: Corpora,
    split: str = "valid",
    device: options.Place,
) -> None:
    """Print the similarity of encoder layers to the embedding, the layer below and the sentence.

    Figures 2, 7 and 8 of Li et al. 2020, over a validation set.

    Args:
        split: Set of --data to measure on.
    """
    from nmtdeep.analysis.similarity import measure
    from nmtdeep.checkpoint import load_model

    loaded = {str(model): load_model(model) for model in models}
    for each in loaded.values():
        each.model.to(device)
    outputs.write(measure(loaded, corpora, split))


def attention(
    model: options.Run,
    *,
    outputs: WrittenTo,
    source: str,
    target: str | None = None,
    of: Literal["cross", "encoder", "decoder"] = "cross",
    layer: str = "mean",
    head: str = "mean",
    input_is: Form | None = None,
    device: options.Place,
) -> None:
    """Print the attention of a model in a sentence pair, subword by subword.

    Args:
        source: Source sentence.
        target: Translation of --source. Default: the model's translation.
        of: Attention of the decoder to the encoder, or of a stack to itself.
        layer: Number of a layer, from 1; or mean, all.
        head: Number of a head, from 1; or mean, all.
        input_is: Form of the sentences. Default: the recipe's.
    """
    from nmtdeep.analysis.attention import Chosen, measure
    from nmtdeep.checkpoint import load_model

    loaded = load_model(model)
    loaded.model.to(device)
    chosen = Chosen(of, layer, head)
    outputs.write(measure(str(model), loaded, source, target, input_is, chosen))


def lengths(
    systems: Annotated[list[Path], Argument(metavar="SYSTEM")],
    *,
    outputs: WrittenTo,
    source: Path,
    reference: Path,
    metric: Annotated[str, options.METRIC] = "bleu",
) -> None:
    """Print scores by the length of the source: 1-10, 11-20, ... words.

    Args:
        systems: Files with translations of --source.
        source: Source text; .gz allowed.
        reference: Reference translation of --source.
        metric: Metric of `nmtdeep score`.
    """
    from nmtdeep.analysis.lengths import measure
    from nmtdeep.scoring.texts import read_text

    translations = {str(system): read_text(system).lines for system in systems}
    outputs.write(measure(read_text(source), read_text(reference), translations, metric))


def _names_and_changes(subjects: Sequence[str]) -> tuple[list[str], list[str]]:
    """Recipes or runs, and values to change in them."""
    names = [word for word in subjects if "=" not in word or Path(word).is_dir()]
    if not names:
        raise UserError("no recipe given", hint="name one, such as multi30k-en-de")
    return names, [word for word in subjects if word not in names]


def _refuse(run: str, given: Sequence[str]) -> None:
    """A trained model is measured as it is."""
    if given:
        what = f"a trained model cannot be combined with {', '.join(given)}"
        raise UserError(what, where=run, hint="leave it out, or pass recipes only")
