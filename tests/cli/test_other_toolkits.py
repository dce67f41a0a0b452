"""What users of fairseq, Hugging Face, Marian, JoeyNMT and Eole type, and the answers."""

import re
from importlib.resources import files
from typing import Any

import pytest
import typer.main

from nmtdeep.cli.errors import usage_error
from nmtdeep.cli.main import app
from nmtdeep.config.load import load_recipe
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


OPTIONS = {
    "train --save-dir r": "write --out DIR",
    "train --fp16": "write --precision fp16",
    "train --encoder-layers 12": "write model.encoder.depth=VALUE, without dashes",
    "train --learning_rate 1": "write --lr NUMBER",
    "train --devices 0": "write --device cuda, and --processes N for N GPUs",
    "train --model.encoder.depth=3": "write model.encoder.depth=VALUE, without dashes",
    "score r -i h": "hypotheses are the first argument, without an option: nmtdeep score HYP REF",
    "train --find-lr": "now a command of its own: nmtdeep analyze learning-rate",
}


@pytest.mark.parametrize("line", OPTIONS)
def test_an_option_of_another_toolkit_is_answered_with_the_cure(line):
    name = next(word for word in line.split() if word[0] == "-").partition("=")[0]
    shown = "-c" if name == "-config" else name
    assert said(line) == f"no such option: {shown}: {OPTIONS[line]}"


COMMANDS = {
    "interactive": "use nmtdeep translate",
    "finetune": "use nmtdeep train --from RUN",
    "trian": "did you mean train?",
    "doctor": "use nmtdeep inspect DATA (preprocess prints the same warnings about text)",
    "xyz": "see `nmtdeep --help`",
}


@pytest.mark.parametrize("word", COMMANDS)
def test_a_command_of_another_toolkit_is_answered_with_the_cure(word):
    assert said(word) == f"no such command: {word}: {COMMANDS[word]}"


KEYS = {
    "model.initialiser": "did you mean model.initializer?",  # of an earlier version
    "model.encoder.layers": "did you mean model.encoder.depth?",
    "model.hidden_size": "did you mean model.width?",
    "model.encoder.kv_heads": "does not exist: each head has its own keys and values",
    "model.encoder.dropout": "did you mean model.dropout.residual?",
    "training.lr": "did you mean training.schedule.lr?",
    "training.use_cuda": "not part of a recipe: nmtdeep train takes --device and --processes",
    "data.train": "not part of a recipe: nmtdeep preprocess takes --train, --valid and --test",
}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_another_toolkit_is_answered_with_the_cure(key):
    with pytest.raises(UserError) as caught:
        load_recipe("deep-small", [f"{key}=1"])
    assert str(caught.value).endswith(f": unknown key: {KEYS[key]}")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("sacrebleu", "(did you mean bleu?)"),
        ("multi-bleu", "(did you mean bleu-tok?)"),
        ("chrF2", "(did you mean chrf?)"),
        ("wmt22-comet-da", "(did you mean comet?)"),
        ("rouge", "not computed here: score the translations with the program that has it"),
    ],
)
def test_a_metric_of_another_name(name, answer):
    with pytest.raises(UserError) as caught:
        metric_named(name)
    assert answer in str(caught.value)


def options(command: Any) -> set[str]:
    below = command.list_commands(None) if hasattr(command, "list_commands") else ()
    own = {name for each in command.params for name in each.opts if name[0] == "-"}
    return own.union(*(options(command.get_command(None, name)) for name in below))


def known_keys() -> set[str]:
    """All keys of the reference of recipes, docs/config.md."""
    text = (files("nmtdeep") / ".." / "docs" / "config.md").read_text(encoding="utf-8")
    keys, section = set(), ""
    for line in text.splitlines():
        if found := re.match(r"## `(.+)`", line):
            section = f"{found[1]}."
        if found := re.match(r" *- `(\w+)` ", line):
            keys |= {f"{section}{found[1]}", found[1]}
        keys.add(section[:-1])
    return keys


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1].split()[0]}")
def test_a_cure_names_what_exists(row):
    places, names, cure = row
    assert all(name == name.lower() and "-" not in name for name in names.split())
    for place in places.split():
        if place == "key" and " " not in cure:
            assert cure in known_keys()
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
