"""The start of the command: signals, closed streams, errors, no docstrings."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmtdeep.cli.errors import as_user_error
from nmtdeep.errors import UserError

ROOT = Path(__file__).parents[2]
NMTDEEP = (sys.executable, "-m", "nmtdeep")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"env": ENVIRONMENT, "timeout": 300} | options
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


def run_with(streams: str, *words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command with streams closed as a shell closes them, such as `>&-`."""
    shell = ("bash", "-c", f'"$@" {streams}', "bash")
    return run(*shell, *NMTDEEP, *map(str, words), **options)


INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.{signal})

sys.meta_path.insert(0, Interrupts())
from nmtdeep.cli.start import start
sys.argv = ["nmtdeep", "recipes", "list"]
start()
"""


@pytest.mark.parametrize(
    ("module", "signal", "code"),
    [("typer", "SIGINT", 130), ("nmtdeep.cli.recipes", "SIGTERM", 143)],
)
def test_a_signal_while_modules_are_imported(module, signal, code):
    done = run(sys.executable, "-c", INTERRUPTED_IMPORT.format(module=module, signal=signal))
    assert (done.returncode, done.stdout) == (code, "")
    # The signal is sent again after an import that may drop it, when the command may have begun.
    assert done.stderr in ("", "nmtdeep recipes list: interrupted by Ctrl-C\n")


SWALLOWED = """
import os, signal, sys, time
from nmtdeep.cli.start import prepare
from pydantic import BaseModel, field_validator

class Model(BaseModel):
    value: int

    @field_validator("value")
    @classmethod
    def interrupted(cls, value):
        os.kill(os.getpid(), signal.SIGINT)
        return value

prepare()
try:
    {work}
    print("whole", flush=True)
except BaseException:  # as code that may fail does
    print("lost", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("work", ["Model(value=1)", "import interrupts"])
def test_a_signal_waits_until_it_is_not_lost(work, tmp_path):
    (tmp_path / "interrupts.py").write_text("import os\nos.kill(os.getpid(), 2)\nx = [1]\n")
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = run(sys.executable, "-c", SWALLOWED.format(work=work), env=environment)
    assert done.stdout == "whole\ninterrupted\n"


@pytest.fixture
def lines(tmp_path):
    (tmp_path / "lines").write_text("a b c d e\n")
    return tmp_path / "lines"


@pytest.mark.parametrize("words", ["--version", "score {} {}"])
def test_output_to_a_closed_stream_is_an_error(words, lines):
    done = run_with(">&-", *words.format(lines, lines).split())
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("nmtdeep: error: Bad file descriptor: redirect the standard")


def test_results_do_not_need_the_other_streams(lines):
    done = run_with("<&- 2>&-", "score", lines, lines)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("BLEU 100.00 ")


@pytest.mark.slow
def test_files_are_translated_without_streams(tiny_run, lines):
    translated = lines.with_name("translated")
    words = ("translate", "-m", tiny_run.path, "-i", lines, "-o", translated)
    done = run_with(">&- 2>&- <&-", *words)
    assert done.returncode == 0, done.stderr
    assert len(translated.read_text().splitlines()) == 1


def test_help_without_docstrings():
    usual = run(*NMTDEEP, "score", "--help")
    assert "Usage:" in usual.stdout
    assert not re.search("[a-z]-$", usual.stdout, re.MULTILINE)  # a name such as bleu-intl-lc
    done = run(*NMTDEEP, "score", "--help", env=ENVIRONMENT | {"PYTHONOPTIMIZE": "2"})
    assert (done.returncode, done.stdout, done.stderr) == (0, usual.stdout, "")


def test_a_name_that_the_encoding_lacks_is_one_line(tmp_path):
    (tmp_path / "v\xfc.en").write_text("a\n")
    environment = ENVIRONMENT | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    name = "v\xfc.en".encode()
    code = (
        "import sys, os; from nmtdeep.cli import main\n"
        "main.app = lambda **_: os.fsdecode(sys.argv[1]).encode('utf-8')\n"
        "main.run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, name], env=environment, check=False, capture_output=True
    )
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"nmtdeep: error: \\udcc3\\udcbc: part of a name or text")


CODE = """
import signal, sys, time
from nmtdeep.cli.start import reraise_signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # the caller may ignore it

class Dropped:
    def __del__(self):
        raise {error}

sys.unraisablehook = reraise_signal
Dropped()
time.sleep({seconds})
"""


@pytest.mark.parametrize(
    ("error", "seconds", "code"), [("KeyboardInterrupt", 60, -2), ("ValueError", 0, 0)]
)
def test_ctrl_c_in_a_destructor_is_not_lost(error, seconds, code):
    command = [sys.executable, "-c", CODE.format(error=error, seconds=seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert error in done.stderr


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("could not create a primitive")])
def test_out_of_memory_is_one_line(error):
    assert str(as_user_error(error)).startswith("out of memory: free some")


def test_an_error_of_a_file_names_it_with_a_hint():
    error = as_user_error(PermissionError(errno.EACCES, "Permission denied", "run"))
    expected = "run: Permission denied: correct the permissions, then run the same command again"
    assert str(error) == expected


def test_a_text_of_several_lines_is_one_line_without_escapes():
    error = UserError("Choose from:\n\ta,\n\tb", where="na\nme", hint="try\n  this")
    assert str(error) == r"na\nme: Choose from: a, b: try this"


def test_another_error_is_not_hidden():
    assert as_user_error(RuntimeError("shapes do not match")) is None
