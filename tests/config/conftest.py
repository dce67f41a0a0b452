"""Write a recipe, and read what is wrong with it."""

from pathlib import Path

import pytest

from nmtdeep.config.load import load_recipe
from nmtdeep.errors import ConfigError, Problem


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current directory, so that messages show short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return name


def raised(name: str, *overrides: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        load_recipe(name, overrides)
    return caught.value.problems


def problems(name: str, *overrides: str) -> list[str]:
    return [str(problem) for problem in raised(name, *overrides)]
