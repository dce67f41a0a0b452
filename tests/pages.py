"""The pages of the documentation and the commands in their blocks."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "recipes/**/*.md", "benchmarks/**/*.md")
    for path in ROOT.glob(pattern)
)
SHELLS = {"sh", "bash", "console", "shell"}
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.M | re.S
)
SEPARATORS = {"|", "||", "&&", ";", "&", "(", ")"}


class Command(NamedTuple):
    """A command of ours as a page shows it, without the name of the program."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def simple_commands(line: str) -> Iterator[list[str]]:
    """The commands that pipes, `&&` and `;` separate, without redirections and variables."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in SEPARATORS:
            yield words
            words = []
        elif word.strip("<>") == "" or word in (">&", "&>"):
            skip = True
        elif skip:
            skip = False
        elif words or not re.fullmatch(r"\w+=.*", word):
            words.append(word)


def commands_in_blocks(page: Path) -> Iterator[Command]:
    for fence in FENCE.finditer(page.read_text(encoding="utf-8")):
        if fence["language"] not in SHELLS:
            continue
        for line in fence["body"].replace("\\\n", " ").splitlines():
            for words in simple_commands(line.strip().removeprefix("$ ")):
                yield from ours(page, words)


def ours(page: Path, words: list[str]) -> Iterator[Command]:
    """The words after `nmtdeep` or `-m nmtdeep`, if this is a command of ours."""
    for place, word in enumerate(words):
        is_module = word == "nmtdeep" and place > 0 and words[place - 1] == "-m"
        if is_module or (place == 0 and word.rpartition("/")[2] == "nmtdeep"):
            yield Command(name_of(page), tuple(words[place + 1 :]))
            return
