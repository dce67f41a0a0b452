"""Real reference text, damaged by a fixed rule, as the output of a system."""

import pytest


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
def german(multi30k):
    return multi30k("test_2016_flickr.de")


@pytest.fixture(scope="session")
def tokens(multi30k):
    return multi30k("tok/test_2016_flickr.lc.norm.tok.de")
