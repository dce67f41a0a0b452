"""Write a recipe, and read what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmtdeep.config.load import load_recipe
from nmtdeep.errors import ConfigError


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return name


def problems(name: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_recipe(name, overrides)
    return str(caught.value).splitlines()
