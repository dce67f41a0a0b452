"""Every command: the help at 80 columns, errors in one line."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import TextWrapper
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


def example(path: tuple[str, ...]) -> list[str]:
    """The words of the example behind the name of the command."""
    heading, _, line = ALL[path].epilog.partition("\n")
    words = shlex.split(line)
    assert [heading, *words[: len(path) + 1]] == ["Example:", "nmtdeep", *path]
    return words[len(path) + 1 :]


def test_an_option_given_twice_is_an_error() -> None:
    words = ["demo", "--train", "a", "--valid", "v", "--valid", "w", "--out", "o"]
    with pytest.raises(UserError, match=r"^--valid: is given twice: pass it once$"):
        LEAVES["preprocess",].make_context("preprocess", words)


def test_options_that_may_be_repeated_may() -> None:
    context = LEAVES["translate",].make_context("translate", ["-m", "a", "--model", "b"])
    assert [str(path) for path in context.params["model"]] == ["a", "b"]


@pytest.fixture(params=ALL, ids=" ".join)
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """A command, and its help on a terminal of 80 columns."""
    # As the entry point has it: test_start.py.
    monkeypatch.setattr(TextWrapper, "wordsep_re", TextWrapper.wordsep_simple_re)
    done = CliRunner().invoke(app, [*request.param, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    return ALL[request.param], done.output


def test_the_help_names_every_option_in_full(shown: tuple[Any, str]) -> None:
    command, text = shown
    words = set(re.split(r"[\s,/]+", text))
    names = {
        name
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden
        for name in [*parameter.opts, *parameter.secondary_opts]
    }
    assert names <= words
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert not re.search("[a-z]-$|<list|<str|<Path", text, re.M)
    for below in getattr(command, "commands", {}).values():
        assert below.help.partition("\n\n")[0] in " ".join(text.split())


def test_the_help_marks_what_is_required(shown: tuple[Any, str]) -> None:
    command, text = shown
    required = sum(parameter.required for parameter in command.params)
    assert text.count("required]") == required


def test_the_help_ends_with_an_example(shown: tuple[Any, str]) -> None:
    command, text = shown
    assert " ".join(text.split()).endswith(" ".join(command.epilog.split()))


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_the_example_parses(path: tuple[str, ...]) -> None:
    context = LEAVES[path].make_context(" ".join(path), example(path))
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
            "no such option: --modle: did you mean --model?",
        ),
        ("translate -m r --xyz", "no such option: --xyz: see `nmtdeep translate --help`"),
        ("--xyz", "no such option: --xyz: see `nmtdeep --help`"),
        ("trian", "no such command: trian: did you mean train?"),
        ("recipes lst", "no such command: lst: did you mean list?"),
        (
            "export r -o o",
            "Missing option '--to'. Choose from: ctranslate2, huggingface: "
            "see `nmtdeep export --help`",
        ),
        (
            "export r -o o --to hugginface",
            "--to: must be ctranslate2 or huggingface, not 'hugginface': did you mean huggingface?",
        ),
        ("translate -m r --beam 0", "--beam: must be more than 0, not 0"),
        ("translate -m", "Option '-m' requires an argument"),
        ("grow r --out o", "Missing option '--layers': see `nmtdeep grow --help`"),
        ("grow --layers 4 --out o", "Missing argument 'RUN': see `nmtdeep grow --help`"),
        ("translate -m r --beam 4 --beam-size 5", "--beam: is given twice: pass it once"),
        ("translate -m r -qq", "--quiet: is given twice: pass it once"),
        (
            "train demo --data d --out o --minutes 5 --max-updates 9",
            "--minutes: excludes --max-updates: pass training.max_minutes to end such a training "
            "by the clock",
        ),
        ("inspect a b", "Got unexpected extra argument(s) (b): see `nmtdeep inspect --help`"),
    ],
)
def test_a_wrong_command_line_is_one_line(line: str, said: str) -> None:
    done = run(*line.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"nmtdeep: error: {said}\n")


def test_a_command_without_arguments_shows_its_help() -> None:
    done = run("grow")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.strip().startswith("Usage: nmtdeep grow")


@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        ("matplotlib", "plot run", "nmtdeep[pictures]"),
        ("jinja2", "report run", "nmtdeep[report]"),
        ("matplotlib", "plot run --plot a.svg --json", "nmtdeep[pictures]"),
        ("matplotlib", "analyze gradients demo --data data --plot a.svg", "nmtdeep[pictures]"),
        ("ctranslate2", "export run --to ctranslate2 -o out", "nmtdeep[export]"),
        ("jieba", "fetch wmt18-zh-en -o out", "nmtdeep[chinese]"),
        ("fastapi", "serve -m run", "nmtdeep[serve]"),
        ("prometheus_client", "serve -m run", "nmtdeep[serve]"),
        ("uvicorn", "serve -m run", "nmtdeep[serve]"),
    ],
)
def test_a_missing_package_is_named_with_its_extra_before_any_work(
    module: str, line: str, said: str, tmp_path: Path
) -> None:
    code = f"import sys; sys.modules['{module}'] = None; from nmtdeep.cli.main import run; run()"
    command = [sys.executable, "-c", code, *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr
    assert not list(tmp_path.iterdir())
