"""The packages of docs/examples in an environment of their own, one through every command."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from nmtdeep.testing import TINY

ROOT = Path(__file__).parents[1]
PACKAGES = ("embedding-shortcut", "newer-methods")
NAME = "nmtdeep_shortcut.embedding"
RECIPE = ["nmtdeep_shortcut/multi30k-en-de", *TINY, "text.bpe.merges=200"]
pytestmark = pytest.mark.slow


class Environment:
    """A virtual environment with the packages of this one, and what is installed there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "env" / "bin" / "python"
        command = [sys.executable, "-m", "venv", "--without-pip", folder / "env"]
        subprocess.run(command, check=True)
        site = sysconfig.get_path("purelib", vars={"base": str(folder / "env")})
        below = [ROOT, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        (Path(site) / "below.pth").write_text("".join(f"{path}\n" for path in below))

    def run(self, *words: object, code: int = 0) -> str:
        """What a command of the environment prints, errors included."""
        hidden = ("PYTHONPATH", "VIRTUAL_ENV")
        environ = {name: value for name, value in os.environ.items() if name not in hidden}
        done = subprocess.run(
            [self.python, *map(str, words)],
            check=False,
            cwd=self.folder,
            env={**environ, "COLUMNS": "200", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def nmtdeep(self, *words: object, code: int = 0) -> str:
        return self.run("-m", "nmtdeep", *words, code=code)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    made = Environment(tmp_path_factory.mktemp("extending"))
    for package in PACKAGES:
        shutil.copytree(ROOT / "docs" / "examples" / package, made.folder / package)
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    made.run("-m", "pip", "install", *offline, *(made.folder / package for package in PACKAGES))
    for split, start, stop in (("train", 0, 300), ("valid", 300, 330)):
        for language in ("en", "de"):
            corpus = ROOT / "nmtdeep" / "demo" / "corpus" / f"test.{language}"
            lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
            (made.folder / f"{split}.{language}").write_text("".join(lines[start:stop]))
    return made


@pytest.mark.parametrize("package", PACKAGES)
def test_its_tests_pass(package, environment):
    settings = ("-c", f"{package}/pyproject.toml", "-p", "no:cacheprovider")
    assert " passed" in environment.run("-m", "pytest", *settings, f"{package}/tests")


def test_every_command_knows_it(environment):
    wrong = "model.encoder.combination.shares=1"
    problem = environment.nmtdeep("recipes", "show", *RECIPE, wrong, code=2)
    assert "did you mean model.encoder.combination.share?" in problem
    more = ("--data", "data", "--threads", 1)
    commands = [
        ("recipes", "list", "shortcut"),
        ("recipes", "show", *RECIPE),
        ("preprocess", *RECIPE, "--train", "train", "--valid", "valid", "--out", "data"),
        ("train", *RECIPE, *more, "--out", "run", "--max-updates", 3),
        ("train", *more, "--out", "run", "--max-updates", 6),  # resumes by config.yaml
        ("average-checkpoints", "run", "--last", 2),
        ("grow", "run", "--layers", 5, "--out", "grown"),
        ("train", *more, "--out", "grown", "--max-updates", 8),
        ("translate", "-m", "grown", "-i", "valid.en", "-o", "hypotheses.de"),
        ("analyze", "combination", "run", "--csv", "weights.csv"),
        ("report", "run", "-o", "report.html"),
        ("inspect", "run"),
    ]
    listed, shown, *_, inspected = (environment.nmtdeep(*words) for words in commands)
    assert "nmtdeep_shortcut/multi30k-en-de" in listed
    assert f"type: {NAME}" in shown
    assert "nmtdeep_shortcut/recipes/multi30k-en-de.yaml:5" in shown
    assert f"type: {NAME}" in (environment.folder / "run" / "config.yaml").read_text()
    assert f"{NAME} of the package nmtdeep-shortcut 0.1.0" in inspected
    assert len((environment.folder / "hypotheses.de").read_text().splitlines()) == 30
    _, *weights = (environment.folder / "weights.csv").read_text().splitlines()
    assert len(weights) == 2 * 3  # y_0 and y_l, above each layer of the encoder
    read = [tuple(row.split(",")[1:3]) for row in weights]  # reader, entry
    assert read == [("2", "0"), ("2", "1"), ("3", "0"), ("3", "2"), ("top", "0"), ("top", "3")]


def test_a_checkpoint_is_refused_by_name_where_the_package_is_missing(environment):
    environment.run("-m", "pip", "uninstall", "--yes", "--quiet", "nmtdeep-shortcut")
    for words in (("translate", "-m", "run"), ("inspect", "run"), ("grow", "run", "--layers", 6)):
        out = ("--out", "other") if words[0] == "grow" else ()
        printed = environment.nmtdeep(*words, *out, code=2)
        needed = f"needs the variant {NAME} of the package nmtdeep-shortcut 0.1.0"
        assert f"{needed}, which is not installed" in printed
        assert "pip install nmtdeep-shortcut==0.1.0" in printed
    assert "shortcut" not in environment.nmtdeep("recipes", "list")
