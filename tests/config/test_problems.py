"""Every problem of a recipe at once, with its line and its hint."""

import os
from pathlib import Path

import pytest

from nmtdeep.config.load import load_recipe

from .conftest import problems, raised, write


def test_every_problem_is_reported_at_once(folder):
    text = """\
model:
  width: wide
  encoder:
    dept: 3
    residual: {type: prenorm}
    heads: true
  decoder:
    sublayers: [self_attention, cros_attention, {type: feed_forward, volume: 1}]
  initializer: {type: glorot, gian: 2}
training:
  schedule: {scale: 2}
  label_smoothing: 1.5
  optimizer: {betas: [0.9]}
  validation: 3
text: {input: raww, source: English}
reference: {row: 3, scores: [1]}
color: {red: 1}
"""
    where = [problem.where for problem in raised(write("x.yaml", text), "trainning.seed=1")]
    assert where == [
        "x.yaml:2: model.width",
        "x.yaml:4: model.encoder.dept",
        "x.yaml:5: model.encoder.residual",
        "x.yaml:6: model.encoder.heads",
        "x.yaml:8: model.decoder.sublayers[1]",
        "x.yaml:8: model.decoder.sublayers[2].volume",
        "x.yaml:9: model.initializer.gian",
        "x.yaml:11: training.schedule.scale",
        "x.yaml:12: training.label_smoothing",
        "x.yaml:13: training.optimizer.betas[1]",
        "x.yaml:14: training.validation",
        "x.yaml:15: text.source",
        "x.yaml:15: text.input",
        "x.yaml:16: reference.row",
        "x.yaml:16: reference.scores",
        "x.yaml:17: color",
        "override 'trainning.seed=1': trainning",
    ]


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("model.depth=3", "did you mean model.encoder.depth or model.decoder.depth?"),
        ("model.encoder.residual=prenorm", "did you mean pre_norm?"),
        ("model.initializer={type: glorot, gian: 2}", "did you mean model.initializer.gain?"),
        ("training.schedule.scale=2", "type linear does not have it"),
        ("training.checkpoint={every: 3}", "did you mean training.checkpoints?"),
        ("reference.row=3", "put it in quotes"),
        ("color=red", "choose from description, reference, text, model, training, decoding"),
    ],
)
def test_a_hint_is_the_nearest_spelling_or_the_choices(override, hint):
    (problem,) = raised("demo", override)
    assert problem.hint == hint


def test_a_conflict_points_at_the_key_that_a_file_sets(folder):
    write("base.yaml", "model:\n  width: 510\n")
    (problem,) = raised(write("x.yaml", "extends: base.yaml\ndescription: x\n"))
    assert problem.where == "base.yaml:2: model.width" and "encoder.heads 8" in problem.what


@pytest.mark.parametrize(
    ("content", "where", "word"),
    [
        (b"", "x.yaml", "empty"),
        (b"- a\n- b\n", "x.yaml", "not a recipe"),
        (b"model:\n  width: \xff\n", "x.yaml:2", "UTF-8"),
        (b"#" * 1_000_001, "x.yaml", "larger than 1 MB"),
        (b"a: &a 1\nb: *a\n", "x.yaml:1", "anchors"),
        (b"a: \x07\n", "x.yaml:1", "special characters"),
        (b"[" * 200_000, "x.yaml", "more than 20 levels"),
        (b"2019: 1\n", "x.yaml:1", "not 2019"),
        (b'reference: {note: "\\ud800"}\n', "x.yaml", "surrogates"),
        (b'"a\\nb\\e[31m": 1\n', r"x.yaml:1: a\nb\x1b[31m", "unknown key"),
        (b"<<: {model: {width: 64}}\n", "x.yaml:1", "merge keys"),
        (b"a: 1\nb: 2\na: 3\n", "x.yaml:3: a", "given twice"),
        (b"training:\n  batches:\n", "x.yaml:2: training.batches", "not null"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_an_invalid_file(folder, content, where, word):
    Path("x.yaml").write_bytes(content)
    problem = problems("x.yaml")[0]
    assert problem.startswith(f"{where}: ") and word in problem


def test_at_most_100_problems_are_explained(folder):
    write("x.yaml", "".join(f"model{number}: 1\n" for number in range(3000)))
    lines = problems("x.yaml")
    assert len(lines) == 101
    assert lines[-1] == "x.yaml: and 2900 more problems: fix these first"


def test_paths_without_a_recipe(folder):
    Path("folder.yaml").mkdir()
    Path("closed.yaml").touch(mode=0)
    assert "no such file" in problems("folder.yaml")[0]
    assert "did you mean multi30k-en-de" in problems("gone/multi30k-en-de.yaml")[0]
    assert "no recipe" in problems(str(folder))[0]
    if os.geteuid():
        assert "cannot be read" in problems("closed.yaml")[0]


@pytest.mark.parametrize("name", ["", "\0", "x" * 5000, "\0.yaml", "x" * 5000 + ".yaml", "???"])
def test_invalid_names(name):
    assert "`nmtdeep recipes list`" in problems(name)[0]


@pytest.mark.parametrize(
    ("override", "key", "word"),
    [
        ("model.encoder=null", "model.encoder", "must be a section, not null"),
        ("model={encoder: {}}", "model.encoder", "sets nothing"),
        ("model.encoder.residual=", "model.encoder.residual", "must be pre_norm, post_norm, "),
        ("model.encoder.residual=[post_norm, pre_norm]", "model.encoder.residual", "one kind"),
        ("text.tags=", "text.tags", "must be a mapping"),
        ("text.tags={web: bt}", "text.tags.web", "write it as in <bt>"),
        ("text.tags={a b: <bt>}", "text.tags.a b", "the name of a corpus"),
        ("training.stages=", "training.stages", "must be a list, not null"),
        ("training.validation.every=0 epochs", "training.validation.every", "2 epochs"),
        ("training.start_from={sha256: x}", "training.start_from.path", "is missing"),
        ("model.encoder.sublayers=[]", "model.encoder.sublayers", "at least 1"),
        ("training.validation.best_by=comet", "training.validation.best_by", "needs a model"),
        (
            "training.validation={bleu: false, best_by: loss, comet: model}",
            "training.validation.comet",
            "bleu: true",
        ),
        ("training.mixture={temperature: 2, a: 1}", "training.mixture.temperature", "combined"),
    ],
)
def test_an_override_that_means_nothing(override, key, word):
    (line,) = problems("deep-small", override)
    assert line.startswith(f"override {override!r}: {key}: ") and word in line


def test_only_true_and_false_are_booleans():
    """YAML 1.2 has no other words, and `no` is a language."""
    for word in ("yes", "no", "on", "off", "y", "n", "1", "0"):
        (problem,) = raised("deep-small", f"text.lowercase={word}")
        assert problem.what.startswith("must be true or false, not ")
    assert load_recipe("deep-small", ["text.lowercase=True"]).text.lowercase
