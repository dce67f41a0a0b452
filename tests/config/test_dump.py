"""A recipe written out in full loads back equal."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtdeep.config.load import from_mapping, load_recipe, read_config
from nmtdeep.config.render import differences, display, dump
from nmtdeep.config.section import Section
from nmtdeep.config.source import parse
from nmtdeep.errors import UserError

from .conftest import write


@given(
    note=st.text(max_size=60),
    scores=st.dictionaries(st.text(max_size=12), st.floats(allow_nan=False, allow_infinity=False)),
    epsilon=st.floats(min_value=1e-300, max_value=1e300),
    language=st.sampled_from(["no", "on", "yes", "off", "de"]),
)
@settings(max_examples=20)
def test_dump_and_load_are_inverse(tmp_path_factory, language, note, scores, epsilon):
    values = {
        "description": note[::-1],
        "reference": {"note": note, "scores": scores},
        "text": {"target": language, "bpe": "none"},
        "model": {"encoder": {"residual": "post_norm"}, "norm_epsilon": epsilon},
    }
    recipe = from_mapping(values)
    path = tmp_path_factory.getbasetemp() / "dumped.yaml"
    path.write_text(dump(recipe), encoding="utf-8", newline="\n")
    loaded = load_recipe(str(path))
    assert loaded == recipe
    assert dump(loaded) == dump(recipe)


def keys(section, above=""):
    """The paths of all fields of a section and of those inside it."""
    found = set()
    for name in type(section).model_fields:
        value, path = getattr(section, name), f"{above}{name}"
        inside = isinstance(value, Section) and len(type(value).model_fields) > 1
        found |= keys(value, f"{path}.") if inside else {path}
    return found


@pytest.mark.parametrize("name", ["demo", "multi30k-en-de-deep"])
def test_a_recipe_is_shown_with_every_value(name):
    recipe = load_recipe(name)
    hidden = [
        *("text.tags", "text.clean.duplicates", "text.clean.language_id"),
        *("model.encoder.width", "model.decoder.initializer", "training.mixture"),
        *("training.start_from", "training.record_gradients", "training.validation.comet"),
    ]
    for text in (display(recipe), display(recipe, "/".join)):
        found = set(parse(text, name).origins)
        assert {tuple(key.split(".")) for key in (*hidden, *keys(recipe))} <= found
    assert from_mapping(parse(display(recipe), name).values) == recipe
    # Files keep their format: a value that is absent has no line.
    stored = {".".join(map(str, path)) for path in parse(dump(recipe), name).origins}
    assert not stored & set(hidden)


def test_read_config_takes_a_run_directory_or_its_file(folder):
    recipe = load_recipe("multi30k-en-de", ["training.seed=7"])
    write("run/config.yaml", dump(recipe))
    assert read_config(Path("run")) == read_config(Path("run/config.yaml")) == recipe


def test_differences_have_the_key_and_both_values():
    old = {"a": {"b": 1, "c": 2}, "d": ({"i": None},), "f": "fr"}
    new = {"a": {"b": 1, "c": 5}, "d": (), "e": True, "f": "de"}
    changes = ["a.c: 2 -> 5", "d: [{i: null}] -> []", "f: fr -> de", "e: null -> true"]
    assert sorted(differences(old, new)) == sorted(changes)


def test_what_is_gone_is_left_out_of_stored_recipes(folder):
    gone = "  sharding: full\n  log_to: [mlflow, tensorboard, trackio]\n"
    Path("config.yaml").write_text(f"training:\n{gone}")
    assert read_config(Path("config.yaml")).training.log_to == ("tensorboard",)
    with pytest.raises(UserError, match=r"(?s)sharding: unknown key.*must be tensorboard or"):
        load_recipe("config.yaml")
    Path("SHA256SUMS").touch()  # as a run has it, which goes on with its own recipe
    stored = load_recipe("config.yaml")
    assert stored.training.log_to == ("tensorboard",)
    assert stored.text.tokenizer.model_dump()["rules"] == "original"
