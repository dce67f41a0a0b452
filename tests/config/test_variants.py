"""Variants of other packages: found when a recipe names them, and reported by name if not."""

import sys
from pathlib import Path

import pytest
from installed import installed

from nmtdeep.config.load import from_mapping, load_recipe, read_config
from nmtdeep.config.names import list_recipes, recipe_files, roots
from nmtdeep.config.render import dump
from nmtdeep.config.variant import missing_variants, packages_of

from .conftest import problems, raised

CODE = """
from typing import Literal
from nmtdeep.config.section import Count
from nmtdeep.config.slots import CombinationVariant, SublayerVariant
from nmtdeep.config.stages import GrowthVariant

class Echo(CombinationVariant):
    type: Literal["parrot.echo"] = "parrot.echo"
    times: Count = 2

class Sing(SublayerVariant):
    type: Literal["parrot.sing"] = "parrot.sing"

class Hum(Sing):
    type: Literal["parrot.hum"] = "parrot.hum"
    takes_packing = True

class Grow(GrowthVariant):
    type: Literal["parrot.grow"] = "parrot.grow"

class Liar(CombinationVariant):
    type: Literal["parrot.truth"] = "parrot.truth"
"""
VARIANTS = {
    **{f"parrot.{each.lower()}": each for each in ("Echo", "Sing", "Hum", "Grow", "Liar")},
    "parrot.gone": "Nowhere",
}


@pytest.fixture(autouse=True)
def parrot(tmp_path, monkeypatch):
    """A package `parrot` on the path, with a recipe."""
    folder = tmp_path / "parrot" / "recipes"
    folder.mkdir(parents=True)
    above = "description: Loud\nextends: deep-small\n"
    (folder / "loud.yaml").write_text(f"{above}model: {{encoder: {{combination: parrot.echo}}}}\n")
    monkeypatch.chdir(tmp_path)
    for found in (recipe_files, roots):  # once in a process
        found.cache_clear()
    yield from installed("parrot", CODE, VARIANTS, tmp_path, monkeypatch)
    for found in (recipe_files, roots):
        found.cache_clear()


def test_a_package_is_imported_when_a_recipe_names_it_and_not_before():
    assert list_recipes()["parrot/loud"] == "Loud"
    load_recipe("deep-small")
    assert "parrot" not in sys.modules
    assert load_recipe("loud").model.encoder.combination.type == "parrot.echo"
    assert "parrot" in sys.modules


def test_a_recipe_with_a_variant_loads_back_equal():
    overrides = [
        "model.encoder.combination={type: parrot.echo, times: 5}",
        "model.decoder.combination=parrot.echo",
        "model.decoder.sublayers=[parrot.sing, cross_attention]",
        "training.growth.strategy=parrot.grow",
    ]
    recipe = load_recipe("deep-small", overrides)
    assert recipe.model.encoder.combination.times == 5
    Path("config.yaml").write_text(dump(recipe))
    assert read_config(Path("config.yaml")) == recipe
    assert from_mapping(recipe.model_dump(mode="json")) == recipe
    assert packages_of(recipe) == dict.fromkeys(
        ("parrot.echo", "parrot.sing", "parrot.grow"), "parrot 1"
    )
    assert packages_of(load_recipe("deep-small")) == {}


@pytest.mark.parametrize(("sublayer", "rows"), [("parrot.sing", False), ("parrot.hum", True)])
def test_batches_have_padding_unless_a_sublayer_says_it_takes_packing(sublayer, rows):
    recipe = load_recipe("deep-small", [f"model.encoder.sublayers=[{sublayer}, feed_forward]"])
    assert recipe.uses_packing("cuda") is rows


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("parrot.eko", "did you mean parrot.echo?"),
        ("owl.hoot", "install the package owl"),
        ("parrot.sing", "is a sublayer, not a layer combination"),
        ("parrot.liar", "is not a variant of this type"),
        ("parrot.gone", "cannot be imported"),
    ],
)
def test_what_is_wrong_is_said_by_name(value, word):
    (found,) = raised("deep-small", f"model.encoder.combination={value}")
    assert found.where.endswith(": model.encoder.combination.type") and found.hint
    assert value in str(found) and word in str(found)


def test_keys_of_a_variant_have_hints_of_their_own():
    first = "model.encoder.combination={type: parrot.echo, tims: 3}"
    second = "model.decoder.combination={type: parrot.echo, times: often}"
    found = {problem.where: str(problem) for problem in raised("deep-small", first, second)}
    assert "not 'often'" in found[f"override {second!r}: model.decoder.combination.times"]
    assert "combination.times?" in found[f"override {first!r}: model.encoder.combination.tims"]


def test_two_packages_with_one_name_are_refused(tmp_path, monkeypatch):
    next(installed("impostor", CODE, {"parrot.echo": "Echo"}, tmp_path / "more", monkeypatch))
    (found,) = problems("deep-small", "model.encoder.combination=parrot.echo")
    assert "impostor" in found and found.endswith("uninstall one of them")


def test_missing_variants_are_those_without_an_installed_package():
    assert missing_variants({"parrot.echo": "parrot 1", "owl.hoot": "owl 3"}) == ["owl.hoot"]
