"""`nmtdeep preprocess`: --quiet and --dry-run, and languages that Moses does not know."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from nmtdeep.cli.main import app

RECIPE = "text:\n  bpe: {type: joint, merges: 30}\n"


@pytest.fixture
def files(tmp_path):
    for name in ("train", "dev", "test"):
        for language in ("en", "cs"):
            (tmp_path / f"{name}.{language}").write_text("one cat .\ntwo cats .\n" * 4)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def call(files: Path, *more: str, target: str = "cs"):
    arguments = ["preprocess", str(files / "recipe.yaml"), "--train", str(files / "train")]
    arguments += ["--valid", str(files / "dev"), "--out", str(files / "data"), "-t", target]
    return CliRunner().invoke(app, [*arguments, *more])


def test_dry_run_shows_and_writes_nothing(files):
    result = call(files, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "train: 8 pairs of" in result.output
    assert "target: cs" in result.output
    assert not (files / "data").exists()


@pytest.mark.parametrize(
    ("target", "more", "times"),
    [("sr-Latn", ("text.normalize=false",), 1), ("zh-Hant", (), 0), ("kab", ("-q",), 0)],
)
def test_a_language_without_rules_is_named_once(files, target, more, times):
    for name in ("train", "dev"):
        (files / f"{name}.cs").rename(files / f"{name}.{target}")
    result = call(files, *more, "--dry-run", target=target)
    assert result.exit_code == 0, result.output
    assert result.output.count(f"Moses has no rules for {target}") == times
    assert "no rules for en" not in result.output
