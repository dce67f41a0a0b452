"""Completions of commands in a shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmtdeep.config.names import recipe_files
from nmtdeep.scoring.metrics import METRICS

# The program asks for completions in the environment; torch must not be read for them.
CODE = "import sys; sys.modules['torch'] = None; from nmtdeep.cli.main import run; run()"


def offered(line: str, folder: Path) -> list[str]:
    """Completions in bash of the last word of a line."""
    environment = {
        **os.environ,
        "_NMTDEEP_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=environment,
    )
    return done.stdout.split()


@pytest.mark.parametrize("command", ["train", "analyze gradients"])
def test_recipes_are_completed(command, tmp_path):
    (tmp_path / "multi-mine.yaml").touch()
    expected = [name for name in recipe_files() if name.startswith("multi")]
    assert len(expected) > 1
    assert offered(f"nmtdeep {command} multi", tmp_path) == [*expected, "multi-mine.yaml"]


def test_metrics_are_completed(tmp_path):
    assert offered("nmtdeep score a b --metric ", tmp_path) == list(METRICS)
    assert offered("nmtdeep analyze lengths run --metric chr", tmp_path) == ["chrf", "chrf++"]


def test_keys_are_completed(tmp_path):
    assert offered("nmtdeep train demo model.encoder.dep", tmp_path) == ["model.encoder.depth="]
    assert offered("nmtdeep train model.wid", tmp_path) == ["model.width="]
