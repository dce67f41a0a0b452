"""What users of fairseq, Hugging Face, Marian, JoeyNMT and Eole type, and the answers."""

import re
from importlib.resources import files
from typing import Any

import pytest
import typer.main

from nmtdeep.cli.errors import usage_error
from nmtdeep.cli.main import app
from nmtdeep.config.load import load_recipe
from nmtdeep.config.problems import keys
from nmtdeep.errors import UserError
from nmtdeep.scoring.metrics import metric_named

APP: Any = typer.main.get_command(app)
PLACES = {name: APP.get_command(None, name) for name in APP.list_commands(None)}
FILE = files("nmtdeep.config") / "other_toolkits.tsv"
ROWS = [line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines()]


def said(line: str) -> str:
    """The error of a command line that is wrong before the command runs."""
    try:
        context = APP.make_context("nmtdeep", line.split())
        name, command, words = APP.resolve_command(context, line.split())
        command.make_context(name, words, parent=context)
    except UserError as error:
        return str(error)
    except typer.TyperException as error:
        return str(usage_error(error))
    raise AssertionError("no error")


# What is typed, and the end of the answer: a command line, a key of a recipe, a metric.
ANSWERS = {
    "train --save-dir r": "write --out DIR",
    "train --learning_rate 1": "write --lr NUMBER",
    "train --model.encoder.depth=3": "write model.encoder.depth=VALUE, without dashes",
    "train --find-lr": "now a command of its own: nmtdeep analyze learning-rate",
    "trian": "did you mean train?",
    "doctor": "use nmtdeep inspect DATA (preprocess prints the same warnings about text)",
    "xyz": "see `nmtdeep --help`",
}
KEYS = {
    "model.initialiser": "did you mean model.initializer?",  # of an earlier version
    "model.encoder.layers": "did you mean model.encoder.depth?",
    "training.lr": "did you mean training.schedule.lr?",
    "data.train": "not part of a recipe: nmtdeep preprocess takes --train, --valid and --test",
}
METRICS = {"sacrebleu": "(did you mean bleu?)", "rouge": "not computed here"}


def test_words_of_another_toolkit_are_answered_with_the_cure():
    for line, cure in ANSWERS.items():
        assert said(line).endswith(f": {cure}")
    for key, cure in KEYS.items():
        with pytest.raises(UserError, match=re.escape(cure)):
            load_recipe("deep-small", [f"{key}=1"])
    for name, cure in METRICS.items():
        with pytest.raises(UserError, match=re.escape(cure)):
            metric_named(name)


def options(command: Any) -> set[str]:
    below = command.list_commands(None) if hasattr(command, "list_commands") else ()
    own = {name for each in command.params for name in each.opts if name[0] == "-"}
    return own.union(*(options(command.get_command(None, name)) for name in below))


KEYS_OF_RECIPES = {".".join(key[-length:]) for key in keys() for length in range(1, len(key) + 1)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1].split()[0]}")
def test_a_cure_names_what_exists(row):
    places, names, cure = row
    assert all(name == name.lower() and "-" not in name for name in names.split())
    for place in places.split():
        if place == "key" and " " not in cure:
            assert cure in KEYS_OF_RECIPES
        if place == "metric" and " " not in cure:
            metric_named(cure)
        if place == "command":
            words = [each.strip(":") for each in cure.split()]
            assert words[0] == "nmtdeep" and words[1] in PLACES
        if place in PLACES:
            mentioned = re.findall(r"--[\w-]+", cure)
            about = re.search(r"nmtdeep (\w+)", cure)
            assert {*mentioned} <= options(PLACES[place]) or about
            own = {option.strip("-").replace("-", "_") for option in options(PLACES[place])}
            assert not own & {*names.split()}
