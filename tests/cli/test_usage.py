"""Every command: the help at 80 columns, errors in one line."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from textwrap import TextWrapper
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from nmtdeep.cli.errors import as_user_error
from nmtdeep.cli.main import COMMANDS, GROUPS, app
from nmtdeep.config.load import load_recipe
from nmtdeep.errors import UserError


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands and groups of commands, each with the words that name it."""
    yield path, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(None, name), (*path, name))


ALL = dict(commands(typer.main.get_command(app)))
LEAVES = {path: command for path, command in ALL.items() if not hasattr(command, "commands")}


def test_every_command_of_the_table_is_found():
    groups = {(group, name) for group, below in GROUPS.items() for name in below}
    assert {*LEAVES} == {*((name,) for name in COMMANDS), *groups}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_help_fits_80_columns(path, monkeypatch):
    """It names every option in full, what is required, each command below, and an example."""
    # As the entry point has it: test_start.py.
    monkeypatch.setattr(TextWrapper, "wordsep_re", TextWrapper.wordsep_simple_re)
    done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    command, text = ALL[path], done.output
    names = {
        name
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden
        for name in [*parameter.opts, *parameter.secondary_opts]
    }
    assert names <= set(re.split(r"[\s,/]+", text))
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search("…|[a-z]-$|<list|<str|<Path", text, re.M)
    assert text.count("required]") == sum(parameter.required for parameter in command.params)
    line = " ".join(text.split())
    for below, other in ALL.items():
        if below[:-1] == path and below:
            assert other.help.partition("\n\n")[0] in line
    assert line.endswith(" ".join(command.epilog.split()))


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_the_example_parses(path):
    heading, _, line = ALL[path].epilog.partition("\n")
    words = shlex.split(line)
    assert [heading, *words[: len(path) + 1]] == ["Example:", "nmtdeep", *path]
    context = LEAVES[path].make_context(" ".join(path), words[len(path) + 1 :])
    if recipe := context.params.get("recipe"):
        load_recipe(recipe, context.params["overrides"] or ())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("translate --modle x", "no such option: --modle: did you mean --model?"),
        ("train demo --ema 0.9", "no such option: --ema: write training.ema=VALUE, without dashes"),
        ("train demo --width 9", "no such option: --width: write model.width=VALUE, model.encoder"),
        ("--xyz", "no such option: --xyz: see `nmtdeep --help`"),
        ("export r -o o --to hugginface", "--to: must be ctranslate2, huggingface or firefox"),
        ("grow r --out o", "Missing option '--layers': see `nmtdeep grow --help`"),
        ("translate -m r --beam 4 --beam-size 5", "--beam: is given twice: pass it once"),
        ("inspect a b", "Got unexpected extra argument(s) (b): see `nmtdeep inspect --help`"),
    ],
)
def test_a_wrong_command_line_is_one_line(line, said):
    with pytest.raises((UserError, typer.TyperException)) as caught:
        app(line.split(), prog_name="nmtdeep", standalone_mode=False)
    error = str(as_user_error(caught.value))
    assert error.startswith(said) and "\n" not in error


def test_a_command_without_arguments_shows_its_help():
    done = subprocess.run(
        [sys.executable, "-m", "nmtdeep", "grow"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.strip().startswith("Usage: nmtdeep grow")


@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        ("matplotlib", "analyze gradients demo --data data --plot a.svg", "nmtdeep[pictures]"),
        ("uvicorn", "serve -m run", "nmtdeep[serve]"),
    ],
)
def test_a_missing_package_is_named_with_its_extra_before_any_work(module, line, said, tmp_path):
    code = f"import sys; sys.modules['{module}'] = None; from nmtdeep.cli.main import run; run()"
    command = [sys.executable, "-c", code, *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr
    assert not list(tmp_path.iterdir())
