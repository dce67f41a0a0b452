"""Every problem of a recipe at once, with its line and its hint."""

import os
from pathlib import Path

import pytest

from nmtdeep.config.load import from_mapping, load_recipe
from nmtdeep.errors import ConfigError

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
  depth: 3
  initializer: {type: glorot, gian: 2}
  bridge: top
training:
  schedule: {scale: 2}
  label_smoothing: 1.5
  optimizer: {betas: [0.9]}
  validation: 3
  checkpoints:
    average_last: 9
text: {input: raww, source: English, lowercase: maybe}
reference: {row: 3, scores: [1]}
color: {red: 1}
"""
    where = [problem.where for problem in raised(write("recipe.yaml", text), "trainning.seed=1")]
    assert where == [
        "recipe.yaml:2: model.width",
        "recipe.yaml:4: model.encoder.dept",
        "recipe.yaml:5: model.encoder.residual",
        "recipe.yaml:6: model.encoder.heads",
        "recipe.yaml:8: model.decoder.sublayers[1]",
        "recipe.yaml:8: model.decoder.sublayers[2].volume",
        "recipe.yaml:9: model.depth",
        "recipe.yaml:10: model.initializer.gian",
        "recipe.yaml:11: model.bridge",
        "recipe.yaml:13: training.schedule.scale",
        "recipe.yaml:14: training.label_smoothing",
        "recipe.yaml:15: training.optimizer.betas[1]",
        "recipe.yaml:16: training.validation",
        "recipe.yaml:18: training.checkpoints.average_last",
        "recipe.yaml:19: text.source",
        "recipe.yaml:19: text.input",
        "recipe.yaml:19: text.lowercase",
        "recipe.yaml:20: reference.row",
        "recipe.yaml:20: reference.scores",
        "recipe.yaml:21: color",
        "override 'trainning.seed=1': trainning",
    ]


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("model.encoder.dept=3", "did you mean model.encoder.depth?"),
        ("model.depth=3", "did you mean model.encoder.depth or model.decoder.depth?"),
        ("model.encoder.residual=prenorm", "did you mean pre_norm?"),
        ("model.decoder.sublayers=[cros_attention]", "did you mean cross_attention?"),
        ("model.initializer={type: glorot, gian: 2}", "did you mean model.initializer.gain?"),
        ("training.schedule.scale=2", "type linear does not have it"),
        ("training.checkpoint={every: 3}", "did you mean training.checkpoints?"),
        ("model.initialiser=glorot", "did you mean model.initializer?"),
        ("reference.row=3", "put it in quotes"),
        ("color=red", "choose from description, reference, text, model, training, decoding"),
    ],
)
def test_a_hint_is_the_nearest_spelling_or_the_choices(override, hint):
    (problem,) = raised("demo", override)
    assert problem.hint == hint


def test_a_conflict_points_at_the_key_that_a_file_sets(folder):
    write("base.yaml", "model:\n  width: 510\n")
    assert problems(write("x.yaml", "extends: base.yaml\ndescription: x\n")) == [
        "base.yaml:2: model.width: width 510 is not a multiple of encoder.heads 8: "
        "choose a divisor of the width"
    ]


def test_comet_needs_a_model_and_translations(folder):
    above = "training:\n  validation:\n    "
    assert problems(write("x.yaml", f"{above}best_by: comet\n")) == [
        "x.yaml:3: training.validation.best_by: comet needs a model: "
        "set validation.comet to a folder or name, or best_by: bleu"
    ]
    text = f"{above}bleu: false\n    best_by: loss\n    comet: model\n"
    assert problems(write("y.yaml", text)) == [
        "y.yaml:5: training.validation.comet: comet scores the translation of bleu: true: "
        "set bleu: true"
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x.yaml: the file is empty: write at least a description"),
        (b"- a\n- b\n", "x.yaml: not a recipe: write `key: value` lines"),
        (b"model:\n  width: \xff\n", "x.yaml:2: not UTF-8: save the file as UTF-8"),
        (b"#" * 1_000_001, "x.yaml: larger than 1 MB: is this really a recipe?"),
        (b"a: &a 1\nb: *a\n", "x.yaml:1: not YAML: anchors, aliases and"),
        (b"a: \x07\n", "x.yaml:1: not YAML: special characters are not allowed"),
        (b"[" * 200_000, "x.yaml: not YAML: more than 20 levels"),
        (b"2019: 1\n", "x.yaml:1: [2019]: Keys should be strings, not 2019"),
        (b'reference: {note: "\\ud800"}\n', "x.yaml: not YAML: surrogates not allowed"),
        (b'"a\\nb\\e[31m": 1\n', r"x.yaml:1: a\nb\x1b[31m: unknown key"),
        (b"<<: {model: {width: 64}}\n", "x.yaml:1: not YAML: anchors, aliases and merge keys"),
        (b"a: 1\nb: 2\na: 3\n", "x.yaml:3: a: is given twice: merge it with line 1"),
        (b"model:\nwidth: 64\n", "x.yaml:1: model: must be a section, not null: indent its"),
        (b"training:\n  batches:\n", "x.yaml:2: training.batches: must be a section, not null"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_an_invalid_file(folder, content, message):
    Path("x.yaml").write_bytes(content)
    assert problems("x.yaml")[0].startswith(message)


def test_at_most_100_problems_are_explained(folder):
    write("x.yaml", "".join(f"model{number}: 1\n" for number in range(3000)))
    lines = problems("x.yaml")
    assert len(lines) == 101
    assert lines[-1] == "x.yaml: and 2900 more problems: fix these first"


def test_paths_without_a_recipe(folder):
    Path("folder.yaml").mkdir()
    Path("closed.yaml").touch(mode=0)
    assert problems("folder.yaml")[0].startswith("folder.yaml: no such file: ")
    assert problems("gone/multi30k-en-de.yaml")[0].startswith(
        "gone/multi30k-en-de.yaml: no such file: did you mean multi30k-en-de"
    )
    assert problems(str(folder))[0].startswith(f"no recipe '{folder}': `nmtdeep recipes list`")
    if os.geteuid():
        assert problems("closed.yaml") == [
            "closed.yaml: cannot be read (Permission denied): check its name and mode"
        ]


@pytest.mark.parametrize("name", ["", "\0", "x" * 5000, "\0.yaml", "x" * 5000 + ".yaml", "???"])
def test_invalid_names(name):
    assert "`nmtdeep recipes list`" in problems(name)[0]


def test_from_mapping_names_its_origin():
    with pytest.raises(ConfigError) as caught:
        from_mapping({"model": {"dept": 1}}, "demo")
    assert str(caught.value) == (
        "demo: model.dept: unknown key: did you mean model.encoder.depth or model.decoder.depth?"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text: {tags: {web: bt}}", "text.tags.web: must be a tag, not 'bt': write it as in <bt>"),
        ("text: {tags: {a b: <bt>}}", "text.tags.a b: must be the name of a corpus, not 'a b': "),
        (
            "training: {validation: {every: 0 epochs}}",
            "training.validation.every: must be a number of updates or epochs, not '0 epochs': "
            "write it as in 1000, 1 epoch or 2 epochs",
        ),
        ("training: {mixture: {a/b: 1}}", "training.mixture.a/b: must be the name of a corpus, "),
    ],
)
def test_names_and_tags_of_corpora(folder, text, message):
    assert message in str(problems(write("x.yaml", text)))


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("model=", "model: must be a section, not null: indent its keys on the lines below it"),
        ("training.batches=", "training.batches: must be a section, not null: "),
        ("model.encoder=null", "model.encoder: must be a section, not null: "),
        ("model={}", "model: sets nothing: write its keys too"),
        ("model={encoder: {}}", "model.encoder: sets nothing: write its keys too"),
        ("training.frozen={}", "training.frozen: sets nothing: "),
        ("model.encoder.residual=", "model.encoder.residual: must be pre_norm, post_norm, "),
        ("model.encoder.residual={}", "model.encoder.residual: sets nothing: "),
        ("text.tags=", "text.tags: must be a mapping of names to values, not null"),
        ("training.stages=", "training.stages: must be a list, not null"),
    ],
)
def test_an_override_that_changes_nothing(override, problem):
    (line,) = problems("deep-small", override)
    assert line.startswith(f"override {override!r}: {problem}")


def test_null_replaces_what_may_be_absent():
    drawn = "model.encoder.initializer=lipschitz"
    assert load_recipe("deep-small", [drawn]).model.encoder.initializer is not None
    back = load_recipe("deep-small", [drawn, "model.encoder.initializer=null"])
    assert back.model.encoder.initializer is None


def test_only_true_and_false_are_booleans():
    """YAML 1.2 has no other words, and `no` is a language."""
    for word in ("yes", "no", "on", "off", "y", "n", "1", "0"):
        (problem,) = raised("deep-small", f"text.lowercase={word}")
        assert problem.what.startswith("must be true or false, not ")
    assert load_recipe("deep-small", ["text.lowercase=True"]).text.lowercase


def test_a_stack_is_of_one_kind():
    (line,) = problems("deep-small", "model.encoder.residual=[post_norm, pre_norm]")
    said = "not ['post_norm', 'pre_norm']: choose one kind for the whole stack"
    assert "must be pre_norm, post_norm, " in line and line.endswith(said)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("training.start_from={sha256: x}", "training.start_from.path: is missing: write a value"),
        ("model.encoder.sublayers=[]", "model.encoder.sublayers: must be a list of at least 1, "),
        (
            "training.mixture={temperature: 2, a: 1}",
            "training.mixture.temperature: a temperature excludes weights of corpora: leave",
        ),
    ],
)
def test_what_is_missing_empty_or_similar_is_named(override, problem):
    (line,) = problems("deep-small", override)
    assert line.startswith(f"override {override!r}: {problem}")
