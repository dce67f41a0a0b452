"""What can be reproduced, and the tables that compare it with the papers.

The papers' numbers are in the recipes (`reference`) and in `published.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import compress
from typing import Any

import torch
from rich.table import Table
from ruamel.yaml import YAML

from nmtdeep import tables
from nmtdeep.analysis.initialization import measure
from nmtdeep.analysis.probe import ProbeText
from nmtdeep.config.load import load_recipe
from nmtdeep.config.names import recipe_files, roots
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.spelling import did_you_mean
from nmtdeep.errors import UserError
from nmtdeep.model.build import build
from nmtdeep.units import counted

PAPERS = ("li-2020", "wang-2019", "xu-2020", "zhang-2019")
# Types of a paper's vocabularies where its counts of parameters imply none.
TYPES = (32_000, 32_000)
# Of a model, by types: counted apart.
TABLES = ("source_embedding.weight", "target_embedding.weight", "output.weight")
# Operations a second of one H200 in bf16: 30 % of the most that was measured on it.
SPEED = 0.3 * 763e12
HOURS = (
    "hours: a rough estimate for one H200 in bf16, without validations; a row that is not here is "
    "a recipe of another table, or of none"
)
# Begin of those commands of figures that are cheap enough to be run.
RUN = "nmtdeep analyze "


@cache
def published() -> dict[str, Any]:
    """The content of `published.yaml`."""
    text = files(__package__).joinpath("published.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = YAML(typ="safe").load(text)
    return content


@cache
def _recipes(paper: str) -> dict[str, dict[str, Recipe]]:
    """A paper's recipes by target, such as `wang-2019/table-1`."""
    found: dict[str, dict[str, Recipe]] = {}
    for name in recipe_files():
        if name.startswith(f"{paper}/"):
            recipe = load_recipe(name)
            place = re.sub(r"[^a-z0-9.]+", "-", recipe.reference.table.lower())
            found.setdefault(f"{paper}/{place}", {})[name] = recipe
    return found


def targets() -> dict[str, str]:
    """What can be reproduced, by name, with a description."""
    named = published()["measured"] | published()["figures"]
    rows = {
        name: counted(len(recipes), "trained model")
        for paper in PAPERS
        for name, recipes in _recipes(paper).items()
    }
    return dict(sorted((rows | {name: each["what"] for name, each in named.items()}).items()))


def checked(name: str) -> str:
    """The name of a target.

    Raises:
        UserError: if there is none of this name.
    """
    paper = name.partition("/")[0]
    rows = _recipes(paper) if paper in PAPERS else {}
    if name in rows | published()["measured"] | published()["figures"]:
        return name
    known = targets()
    hint = did_you_mean(name, known) or "`nmtdeep reproduce` prints the names"
    raise UserError(f"no table or figure {name!r}", hint=hint)


def needs_data(name: str) -> bool:
    """Whether a target is measured on sentences."""
    commands = figure(name).get("commands", ())
    is_measured = name in published()["measured"]
    return is_measured or any(line.startswith(RUN) and "DATA" in line for line in commands)


def figure(name: str) -> dict[str, Any]:
    """What `published.yaml` has about a figure; empty for a table."""
    found: dict[str, Any] = published()["figures"].get(name, {})
    return found


def trained(name: str) -> tuple[list[Table | str], str]:
    """The rows of a table that have recipes, by folder, and the commands that train one."""
    recipes = _recipes(name.partition("/")[0]).get(name, {})
    folders: dict[str, list[tuple[str, ...]]] = {}
    for each, recipe in recipes.items():
        folders.setdefault(each.rpartition("/")[0], []).append(_row(each, recipe))
    if not folders:
        return [], ""
    headings = ("recipe", "row", "scores in the paper", "params", "ours", "hours")
    note = "params: in the paper; ours: with the vocabulary that the paper's counts imply; "
    shown: list[Table | str] = [next(iter(recipes.values())).reference.paper]
    for folder, rows in folders.items():
        below = f"{note if any(row[4] for row in rows) else ''}{HOURS}"
        title = f"Recipes in {folder}/"
        filled = [any(column) for column in zip(*rows, strict=True)]
        cells = [[*compress(row, filled)] for row in (headings, *rows)]
        shown.append(tables.table(cells[0], cells[1:], text=3, title=title, note=below))
    return shown, _commands(name.partition("/")[0])


def _row(name: str, recipe: Recipe) -> tuple[str, ...]:
    """Recipe in its folder, row, printed scores, parameters as printed, ours, and hours."""
    reference, folder = recipe.reference, name.rpartition("/")[0]
    scores = ", ".join(f"{metric} {score:g}" for metric, score in reference.scores.items())
    types = published()["vocabularies"].get(folder)
    ours = ""
    if types and reference.parameters:
        digits = len(reference.parameters.partition(".")[2].rstrip("M"))
        ours = f"{parameters(recipe, types) / 1e6:.{digits}f}M"
    without = "failed" if "(failed" in recipe.description else "not printed"
    last = name.rpartition("/")[2]
    took = f"{hours(recipe, types or TYPES, published()['epochs'].get(folder, 0)):.1f}"
    return last, reference.row, scores or without, reference.parameters, ours, took


def parameters(recipe: Recipe, types: Sequence[int]) -> int:
    """Parameters of a recipe's model, with vocabularies of so many source and target types."""
    return sum(parameter.numel() for parameter in _model(recipe, types).parameters())


def _model(recipe: Recipe, types: Sequence[int]) -> torch.nn.Module:
    with torch.device("meta"):
        return build(recipe.model, source_types=types[0], target_types=types[1])


def hours(recipe: Recipe, types: Sequence[int], epoch: int) -> float:
    """Estimated hours of a recipe's training on one H200, without validations.

    An update takes six operations for each of its tokens and each weight by which a token is
    multiplied: all matrices, and the output matrix once, but no lookup of an embedding. Of the
    rates in docs/performance.md, three of them measured, the hours are within 27 %.

    Args:
        types: of the source and target vocabulary.
        epoch: updates of an epoch, for stages that have a length in epochs.
    """
    left, operations = int(recipe.training.max_updates), 0.0
    for number in range(len(recipe.training.stages) or 1):
        at = recipe.at_stage(number)
        length = left
        if recipe.training.stages:
            stage = recipe.training.stages[number]
            length = min(left, stage.updates or (stage.epochs or 0) * epoch or left)
        names = _model(at, types).named_parameters()
        matrices = (each for name, each in names if name not in TABLES and each.ndim == 2)
        weights = sum(each.numel() for each in matrices) + at.model.width * types[1]
        operations += 6.0 * weights * length * at.training.batches.tokens_per_update
        left -= length
    return operations / SPEED / 3600


def _commands(paper: str) -> str:
    """The first commands in the page of a paper's recipes."""
    [root] = [root for prefix, root in roots() if not prefix.parts]
    text = (root / paper / "README.md").read_text(encoding="utf-8")
    return text.partition("```bash\n")[2].partition("```")[0].strip()


def measured(name: str, text: ProbeText) -> Iterator[Table]:
    """Tables of what is printed, what is measured on `text`, and which cells agree."""
    target = published()["measured"][name]
    for model, each in target["models"].items():
        recipe = load_recipe(target["recipe"], [*target["overrides"], *each["overrides"]])
        found = measure(target["recipe"], recipe, text).summary or ()
        rows = []
        for label, printed in each["values"].items():
            tolerance = target["tolerance"][label]
            ours = [float(str(row[label])) for row in found]
            close = sum(abs(a - b) <= tolerance for a, b in zip(printed, ours, strict=True))
            rows.append((label, "paper", *(f"{value:.2f}" for value in printed), ""))
            within = f"{close} of {len(ours)} within {tolerance}"
            rows.append((label, "ours", *(f"{value:.2f}" for value in ours), within))
        yield tables.table((model, "", *target["columns"], "agreement"), rows, text=2)
