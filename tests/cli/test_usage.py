"""Every command: options given twice, the help at 80 columns, errors in one line."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from nmtdeep.cli.main import app
from nmtdeep.config.load import load_recipe
from nmtdeep.errors import UserError


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands and groups of commands, each with the words that name it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))
LEAVES = {path: command for path, command in ALL.items() if not hasattr(command, "commands")}
SINGLE = [
    (path, option)
    for path, command in LEAVES.items()
    for option in command.params
    if option.param_type_name == "option" and not option.multiple and not option.is_eager
]


def example(path: tuple[str, ...]) -> list[str]:
    """The words of the example behind the name of the command."""
    words = shlex.split(ALL[path].epilog)
    assert words[: len(path) + 1] == ["nmtdeep", *path]
    return words[len(path) + 1 :]


def value(option: Any) -> list[str]:
    """Words that the option takes for a value."""
    choices = option.type_descriptor.choices
    word = choices[0] if choices else "1"
    return [] if option.is_flag else [word] * option.nargs


@pytest.mark.parametrize(
    ("path", "option"), SINGLE, ids=lambda one: one.name if hasattr(one, "name") else " ".join(one)
)
def test_an_option_given_twice_is_an_error(path: tuple[str, ...], option: Any) -> None:
    names = [*option.opts, *option.secondary_opts]
    twice = [names[0], *value(option), names[-1], *value(option)]
    words = example(path)
    if set(words) & set(names):  # the example gives it once already
        twice = twice[: len(twice) // 2]
    with pytest.raises(UserError, match=r"^--[\w-]+: is given twice.*: give it once$"):
        LEAVES[path].make_context(" ".join(path), [*words, *twice])


def test_the_error_names_the_option_given_twice() -> None:
    words = ["demo", "--train", "a", "--train", "b", "--valid", "v", "--out", "o"]
    with pytest.raises(UserError, match=r"^--train: is given twice: give it once$"):
        LEAVES["preprocess",].make_context("preprocess", words)


def test_options_that_may_be_repeated_may() -> None:
    context = LEAVES["translate",].make_context("translate", ["-m", "a", "--model", "b"])
    assert [str(path) for path in context.params["model"]] == ["a", "b"]


@pytest.fixture(params=ALL, ids=" ".join)
def shown(request: pytest.FixtureRequest) -> tuple[Any, str]:
    """A command, and its help on a terminal of 80 columns."""
    done = CliRunner().invoke(app, [*request.param, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    return ALL[request.param], done.output


def test_the_help_names_every_option_in_full(shown: tuple[Any, str]) -> None:
    command, text = shown
    words = set(re.split(r"[\s,]+", text))
    names = {
        name
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden
        for name in [*parameter.opts, *parameter.secondary_opts]
    }
    assert names <= words
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"…|<[a-z]|range|list\[", text)


def test_the_help_marks_what_is_required(shown: tuple[Any, str]) -> None:
    command, text = shown
    required = sum(parameter.required for parameter in command.params)
    if command.name == "train":  # --out is checked by hand
        required = 2
    assert len(re.findall(r"\brequired\]", text)) == required


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_example_is_in_the_help_and_parses(path: tuple[str, ...]) -> None:
    help_text = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}).output
    assert help_text.endswith(f"\nExample:\n  {ALL[path].epilog}\n")
    words = shlex.split(ALL[path].epilog)[1:]
    found = max((each for each in LEAVES if tuple(words[: len(each)]) == each), key=len)
    context = LEAVES[found].make_context(" ".join(found), words[len(found) :])
    if recipe := context.params.get("recipe"):
        load_recipe(recipe, context.params["overrides"] or ())


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nmtdeep", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "translate --modle x",
            "No such option: --modle (Possible options: --model): see `nmtdeep translate --help`",
        ),
        ("trian", "No such command 'trian'. Did you mean 'train'?: see `nmtdeep --help`"),
        ("export r -o o --to onnx", "--to: must be ctranslate2 or huggingface, not 'onnx'"),
        (
            "export r -o o --to hugginface",
            "--to: must be ctranslate2 or huggingface, not 'hugginface': did you mean huggingface?",
        ),
        ("translate -m r --lenpen low", "--lenpen: must be a number, not 'low'"),
        ("translate -m r --beam 2.5", "--beam: must be a whole number, not '2.5'"),
        ("translate -m r --beam 0", "--beam: must be more than 0, not 0"),
        ("translate -m", "Option '-m' requires an argument: see `nmtdeep translate --help`"),
        (
            "export r --check a",
            "Option '--check' requires 2 arguments: see `nmtdeep export --help`",
        ),
        (
            "grow r --out o",
            "--layers: is missing: give --layers N (Number of layers of the deeper stack); "
            "see `nmtdeep grow --help`",
        ),
        (
            "grow --layers 4 --out o",
            "RUN: is missing: give RUN (Run directory or checkpoint); see `nmtdeep grow --help`",
        ),
        ("inspect a b", "Got unexpected extra argument(s) (b): see `nmtdeep inspect --help`"),
        (
            "translate -m r --beam 4 --beam-size 5",
            "--beam: is given twice (--beam, -b, --beam-size are one option): give it once",
        ),
        (
            "translate -m r -qq",
            "--quiet: is given twice (-q, --quiet are one option): give it once",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line(line: str, said: str) -> None:
    done = run(*line.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"nmtdeep: error: {said}\n")


def test_a_command_without_arguments_shows_its_help() -> None:
    done = run("grow")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("Usage: nmtdeep grow")
