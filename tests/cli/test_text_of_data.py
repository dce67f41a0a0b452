"""`train` takes the section text from the data directory; `preprocess --input-is`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nmtdeep.cli.main import app
from nmtdeep.config.load import load_recipe
from nmtdeep.data.corpus import DataDirectory

RECIPE = "text:\n  bpe: {merges: 6000}\nmodel: {width: 8}\n"


@pytest.fixture
def files(tmp_path):
    lines = {"en": "A Cat and a dog , hm .\n" * 9, "de": "Eine Katze und ein Hund , hm .\n" * 9}
    for language, text in lines.items():
        for name in ("train", "dev"):
            (tmp_path / f"{name}.{language}").write_text(text)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def call(files: Path, command: str, *more: str):
    recipe = str(files / "recipe.yaml")
    on = ["--data", str(files / "data"), "--dry-run", "--device", "cpu"]
    if command == "preprocess":
        on = ["--train", str(files / "train"), "--valid", str(files / "dev")]
        on += ["--out", str(files / "data"), "--workers", "1"]
    return CliRunner().invoke(app, [command, recipe, *on, *more])


def test_the_data_directory_wins_over_the_recipe_and_the_line_over_both(files):
    values = ("text.bpe.merges=30", "text.lowercase=true", "text.tags={train: <bt>}")
    assert call(files, "preprocess", *values).exit_code == 0
    done = call(files, "train")
    assert done.exit_code == 0, done.output
    said, _, config = done.output.partition("\n")
    assert said == "section text as of --data: text.bpe.merges: 6000 -> 30"
    (files / "shown.yaml").write_text(config[: config.index("\nmodel   ")])
    shown = load_recipe(str(files / "shown.yaml")).text
    assert shown == DataDirectory.open(files / "data").pipeline.config
    assert (shown.lowercase, shown.tags) == (True, {"train": "<bt>"})
    assert call(files, "train", "text.bpe.merges=30").exit_code == 0
    done = call(files, "train", "text.bpe.merges=40")
    assert "text.bpe.merges: 30 -> 40" in str(done.exception)
    (files / "recipe.yaml").write_text("text: {mergs: 3}\n")
    assert "text.mergs" in str(call(files, "train").exception)


def test_input_is(files):
    assert call(files, "preprocess", "--input-is", "bpe").exit_code == 0
    text = DataDirectory.open(files / "data").pipeline.config
    assert (text.input, text.bpe.type) == ("bpe", "none")
    done = call(
        files, "preprocess", "--overwrite", "--text", str(files / "data"), "--input-is", "raw"
    )
    assert "takes bpe text" in str(done.exception)


def test_more_merges_than_the_text_has_are_named(files):
    done = call(files, "preprocess")
    report = json.loads((files / "data" / "data.json").read_text())["report"]
    assert f"{report['merges']['joint']} of 6,000: the text is too small for more" in done.output
