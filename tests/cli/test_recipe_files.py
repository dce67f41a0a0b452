"""Two recipes compared, and the schema of their files."""

import json
from typing import Any

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from nmtdeep.cli.main import app
from nmtdeep.config.names import recipe_files
from nmtdeep.config.source import parse, read_file


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["recipes", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_diff_prints_each_key_whose_values_differ_with_both(tmp_path):
    texts = {
        "a": "description: x\nmodel: {width: 64, encoder: {heads: 4, residual: post_norm}}\n",
        "b": "description: y\nreference: {row: z}\ntraining: {seed: 7}\n"
        "text: {clean: {duplicates: drop}}\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    a, b = (str(tmp_path / f"{name}.yaml") for name in texts)
    assert sorted(invoke("diff", a, b).splitlines()) == [
        "model.encoder.heads: 4 -> 8",
        "model.encoder.residual.type: post_norm -> pre_norm",
        "model.width: 64 -> 512",
        "text.clean.duplicates: keep -> drop",
        "training.seed: 1 -> 7",
    ]
    assert invoke("diff", a, a) == ""


def _schema() -> Any:
    return jsonschema_rs.validator_for(json.loads(invoke("schema")))


def test_every_shipped_file_fits_the_schema():
    schema = _schema()
    for name, path in recipe_files().items():
        schema.validate(read_file(path, name).values)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("extends: demo\nmodel: {encoder: {residual: post_norm, depth: 12}}", True),
        ("model: {encoder: {combination: {type: package.name, times: 3}}}", True),
        ("training: {validation: {every: 2 epochs}, mixture: {temperature: 5}}", True),
        ("modle: {}", False),
        ("model: {encoder: {residual: {type: pre_norm, order: 4}}}", False),
        ("training: {label_smoothing: 1.5}", False),
    ],
)
def test_the_schema_accepts_what_a_recipe_may_say(text, fits):
    assert _schema().is_valid(parse(text, "x.yaml").values) is fits
