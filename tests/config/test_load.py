"""The loader: values and their origins, `extends`, overrides."""

import pytest

from nmtdeep.config.load import load_recipe, resolve
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.source import parse

from .conftest import problems, raised, write

# Values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1_000", 1000),
        ("010", 10),
        ("1:30", "1:30"),
        ("no", "no"),
        ("true", True),
        ("~", None),
        ("'1'", "1"),
        ("[1, 2e-1, x]", [1, 0.2, "x"]),
        ("{a: no, b: {c: 1}}", {"a": "no", "b": {"c": 1}}),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    parsed = parse(f"key: {text}\n", "x.yaml").values["key"]
    assert parsed == value
    assert type(parsed) is type(value)


def test_an_empty_mapping_of_a_file_changes_nothing(folder):
    text = "model: {}\ntraining: {frozen: {}}\n"
    assert load_recipe(write("x.yaml", text)) == Recipe()


# Origins


def test_every_value_knows_its_line(folder):
    write("base.yaml", "model:\n  width: 64\n  encoder: {heads: 4,\n    depth: 2}\n")
    child = "extends: base.yaml\nmodel:\n  encoder:\n    depth: 3\n    residual: post_norm\n"
    resolved = resolve(write("child.yaml", child), ["training.optimizer.betas=[0.8, 0.9]"])
    origins = {
        ("model", "width"): "base.yaml:2",
        ("model", "encoder", "heads"): "base.yaml:3",
        ("model", "encoder", "depth"): "child.yaml:4",
        ("model", "encoder", "residual", "type"): "child.yaml:5",
        ("model", "decoder", "residual", "type"): "default",
        ("model", "decoder", "heads"): "default",
        ("training", "optimizer", "betas"): "override",
        ("training", "optimizer", "epsilon"): "default",
    }
    assert {path: resolved.origin(path) for path in origins} == origins
    encoder = resolved.recipe.model.encoder
    assert (resolved.recipe.model.width, encoder.heads, encoder.depth) == (64, 4, 3)
    assert encoder.residual.type == "post_norm"


# Extending


def test_a_chain_merges_deeply_and_the_nearest_wins(folder):
    sublayers = "model: {decoder: {sublayers: [cross_attention, feed_forward]}}\n"
    text = "training: {seed: 1, max_updates: 10, schedule: {lr: 1e-3}}\n"
    write("far/a.yaml", text + sublayers)
    write("b.yaml", "extends: far/a.yaml\ntraining: {seed: 2, schedule: {warmup_updates: 7}}\n")
    recipe = load_recipe(write("c.yaml", "extends: b.yaml\ntraining: {seed: 3}\n"))
    schedule = recipe.training.schedule.model_dump()
    assert (recipe.training.seed, recipe.training.max_updates) == (3, 10)
    assert (schedule["lr"], schedule["warmup_updates"]) == (1e-3, 7)
    assert len(recipe.model.decoder.sublayers) == 2  # lists are replaced


def test_a_path_is_relative_to_the_file_that_says_it(folder):
    write("one/two/child.yaml", "extends: ../base.yaml\n")
    write("one/base.yaml", "training: {seed: 5}\nmodle: 1\n")
    assert problems("one/two/child.yaml") == [
        "one/base.yaml:2: modle: unknown key: did you mean model?"
    ]


def test_a_recipe_extends_a_shipped_one_by_name(folder):
    resolved = resolve(write("x.yaml", "extends: multi30k-en-de\ntraining: {seed: 9}\n"))
    assert resolved.recipe.model == load_recipe("multi30k-en-de").model
    assert resolved.origin(("model", "width")).startswith("recipes/multi30k-en-de.yaml:")
    # Its description and reference are its own.
    assert resolved.recipe.description == ""
    assert resolved.recipe.reference == Recipe().reference


def test_a_changed_type_drops_the_fields_of_the_old(folder):
    schedule = "training: {schedule: {lr: 1e-2, warmup_updates: 9}}\n"
    write("a.yaml", f"{schedule}text: {{bpe: {{merges: 5}}}}\n")
    recipe = load_recipe(write("b.yaml", "extends: a.yaml\ntraining: {schedule: noam}\n"))
    noam = {"type": "noam", "scale": 1.0, "warmup_updates": 4000}
    assert recipe.training.schedule.model_dump() == noam
    same = load_recipe(write("c.yaml", "extends: a.yaml\ntext: {bpe: {type: joint}}\n"))
    assert same.text.bpe.model_dump()["merges"] == 5


@pytest.mark.parametrize(
    ("files", "where", "word"),
    [
        ({"a": "extends: b.yaml\n", "b": "\nextends: a.yaml\n"}, "b.yaml:2: extends", "circle"),
        ({"a": "extends: gone.yaml\n"}, "a.yaml:1: extends", "no such file"),
        ({"a": "extends: multi30k\n"}, "a.yaml:1: extends", "did you mean multi30k-en-de"),
        ({"a": "extends: [b, c]\n"}, "a.yaml:1: extends", "one recipe"),
        ({"a": "model: {extends: b}\n"}, "a.yaml:1: model.extends", "unknown key"),
    ],
)
def test_invalid_values_of_extends(folder, files, where, word):
    for name, text in files.items():
        write(f"{name}.yaml", text)
    problem = raised("a.yaml")[0]
    assert problem.where == where and word in str(problem)


# Overrides


def test_overrides_come_last_and_in_order(folder):
    recipe = load_recipe(
        write("x.yaml", "training: {seed: 2, max_epochs: 3, schedule: {lr: 1e-2}}\n"),
        [
            "training.seed=3",
            "training.seed=4",
            "training.schedule={type: noam, scale: 2}",
            "training.schedule.warmup_updates=9",
            "model.encoder.residual=post_norm",
            "training.max_epochs=",
            "description=a run",
        ],
    )
    schedule = recipe.training.schedule.model_dump()
    assert schedule == {"type": "noam", "scale": 2.0, "warmup_updates": 9}
    assert (recipe.training.seed, recipe.training.max_epochs) == (4, None)
    assert (recipe.model.encoder.residual.type, recipe.description) == ("post_norm", "a run")


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("modle.width=3", "did you mean model?"),
        ("model.width", "key.path=value"),
        ("model.width=[1", "not YAML"),
        ("model.width=*x", "alias"),
        ("model.width=1e2", "write 100"),
        ("text.input=bpe", "set text.bpe: none"),
        ("extends=x", "only a recipe file can extend"),
    ],
)
def test_a_wrong_override_is_quoted(folder, override, word):
    name = write("x.yaml", "model:\n  width: 512\n  encoder: {heads: 8}\n")
    (line,) = problems(name, override)
    assert line.startswith(f"override {override!r}: ") and word in line


def test_weights_and_a_temperature_replace_each_other():
    weights, temperature = "training.mixture={a: 0.7, b: 0.3}", "training.mixture={temperature: 5}"
    for overrides, expected in (
        ([weights, "training.mixture.b=0.5"], {"a": 0.7, "b": 0.5}),
        ([weights, temperature], {"temperature": 5}),
        ([temperature, weights], {"a": 0.7, "b": 0.3}),
    ):
        assert load_recipe("demo", overrides).training.mixture == expected
