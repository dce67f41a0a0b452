"""Completions of commands in a shell."""

import os
import subprocess
import sys
from pathlib import Path

from nmtdeep.config.names import recipe_files

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


def test_recipes_metrics_and_keys_are_completed(tmp_path):
    (tmp_path / "multi-mine.yaml").touch()
    expected = [name for name in recipe_files() if name.startswith("multi")]
    assert len(expected) > 1
    assert offered("nmtdeep train multi", tmp_path) == [*expected, "multi-mine.yaml"]
    assert offered("nmtdeep analyze lengths run --metric chr", tmp_path) == ["chrf", "chrf++"]
    assert offered("nmtdeep train demo model.encoder.dep", tmp_path) == ["model.encoder.depth="]
