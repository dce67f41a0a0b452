"""`nmtdeep translate` on a terminal: the progress of a file, and the prompt for lines."""

import contextlib
import os
import pty
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

PROMPT = "type a sentence and press Enter; Ctrl-D ends"


@dataclass(frozen=True)
class Shown:
    """The output of a command."""

    terminal: str
    out: str


@pytest.fixture
def translate(tiny_run, tmp_path):
    """Translate with stderr on a terminal; `typed` makes it stdin too."""

    def run(*words: object, typed: str = "") -> Shown:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "nmtdeep", "translate", "-m", tiny_run.newer, *words]
        if typed:
            os.write(ours, typed.encode())
        with subprocess.Popen(
            list(map(str, command)),
            stdin=theirs if typed else subprocess.DEVNULL,
            stdout=(tmp_path / "out").open("wb"),
            stderr=theirs,
            env={**os.environ, "COLUMNS": "80", "TERM": "xterm"},
        ) as process:
            os.close(theirs)
            read: list[bytes] = []

            def listen() -> None:
                with contextlib.suppress(OSError):  # the other end is closed
                    while part := os.read(ours, 4096):
                        read.append(part)

            listening = threading.Thread(target=listen)
            listening.start()
            assert process.wait(120) == 0
            listening.join()
        os.close(ours)
        return Shown(b"".join(read).decode(), (tmp_path / "out").read_text())

    return run


@pytest.fixture
def source(tiny_run, tmp_path):
    path = tmp_path / "source"
    path.write_text("".join(f"{line}\n" for line in [*tiny_run.sources, "", " ".join("abc" * 40)]))
    return path


def count(path: Path) -> int:
    return path.read_text().count("\n")


@pytest.mark.slow
def test_a_bar_counts_the_lines_of_a_file(translate, source, tmp_path):
    shown = translate("-i", source, "--max-tokens", 200, "--max-source-tokens", 30)
    lines = count(source)
    assert shown.out.count("\n") == lines
    assert f"0/{lines}" in shown.terminal
    assert f"{lines}/{lines}" in shown.terminal
    assert PROMPT not in shown.terminal


def test_a_terminal_shows_a_prompt(translate):
    shown = translate(typed="one line\n\x04")
    assert PROMPT in shown.terminal
    # No rate, which would be that of typing.
    assert "1 line in " in shown.terminal and "lines/s" not in shown.terminal
    assert shown.out.count("\n") == 1
