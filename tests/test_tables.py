"""A number of a table is whole, and its row has its name, on a screen of any width."""

import io
import re

import pytest
from rich.console import Console

from nmtdeep import tables

ROWS = [("train", "600", "3,368", "1,000,123"), ("test_2017_flickr", "12", "45,678", None)]
REASONS = [
    ("train", "source longer than 80 subwords", "dropped", "1,234 (line 1, 2, 3, 4, 5, ...)"),
    ("valid", "target is empty", "kept", "3 (line 4)"),
]


def shown(table: object, width: int, *, terminal: bool = True) -> str:
    console = Console(width=width, force_terminal=terminal, color_system=None, file=io.StringIO())
    tables.show(table, console=console)
    return console.file.getvalue()


def numbers(text: str) -> list[str]:
    return re.findall(r"[\d,]*\d", text)


@pytest.mark.parametrize("width", range(18, 120, 3))
def test_numbers_are_whole_and_rows_have_names(width):
    cells = ("split", "read", "en words", "de words")
    screen = shown(tables.table(cells, ROWS, title="Pairs", note="* of a note"), width)
    assert all(len(line) <= width for line in screen.split("\n"))
    for row in ROWS:
        for cell in filter(None, row[1:]):
            assert cell in numbers(screen)
    assert "train" in screen and "flickr" in screen.replace("\n", "").replace(" ", "")
    screen = shown(tables.table(("split", "reason", "result", "pairs"), REASONS, text=3), width)
    assert {"1,234", "80", "5", "3", "4"} <= {*numbers(screen)}
    assert " ".join(screen.split()).count("dropped") == 1


def test_narrow_lines_name_row_and_column():
    screen = shown(tables.table(("split", "read", "kept"), [("train", "3,368", "7")]), 12)
    assert screen.splitlines() == ["train", "  read 3,368", "  kept 7"]


def test_a_line_that_is_too_long_goes_on_below_its_value():
    lines = "time    tokenize 1.9 s, learn BPE\n  -> zwei frauen\nno value begins here\n"
    assert shown(lines, 18).split("\n") == [
        "time    tokenize",
        "        1.9 s,",
        "        learn BPE",
        "  -> zwei frauen",
        "no value begins",
        "here",
        "",
        "",
    ]
    assert shown(lines, 18, terminal=False) == f"{lines}\n"
    assert all(len(line) <= 9 for line in shown("anotherlongword  x " * 2, 9).split("\n"))


def test_a_pipe_gets_plain_lines_of_any_length():
    note = "a note that is much longer than the table above it, and is not wrapped"
    table = tables.table(("split", "pairs"), [("train", "9")], note=note)
    screen = shown(table, 20, terminal=False)
    assert note in screen.splitlines()
    assert all(line == line.rstrip() for line in screen.splitlines())
