"""Real reference text, damaged by a fixed rule, as the output of a system."""

from __future__ import annotations

from pathlib import Path

import pytest

MULTI30K = Path(__file__).parents[3] / "shared" / "data" / "multi30k-en-de"


def damage(lines: list[str], *, every: int) -> list[str]:
    """Drop the second word of each `every`-th line and turn the next line's last two words."""
    damaged = []
    for number, line in enumerate(lines):
        words = line.split(" ")
        if number % every == 0:
            del words[1:2]
        elif number % every == 1:
            words[-2:] = reversed(words[-2:])
        damaged.append(" ".join(words))
    return damaged


@pytest.fixture(scope="session")
def german() -> list[str]:
    path = MULTI30K / "test_2016_flickr.de"
    if not path.exists():
        pytest.skip("no Multi30k text: the project's shared folder is not beside this checkout")
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture(scope="session")
def tokens() -> list[str]:
    path = MULTI30K / "tok" / "test_2016_flickr.lc.norm.tok.de"
    if not path.exists():
        pytest.skip("no Multi30k text: the project's shared folder is not beside this checkout")
    return path.read_text(encoding="utf-8").split("\n")[:-1]
