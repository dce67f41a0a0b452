"""Recipes by size of data: each is one that was measured, for any languages."""

import re
from pathlib import Path

import pytest

from nmtdeep.config.load import load_recipe

ROOT = Path(__file__).parents[1]
# Epochs of another corpus have other lengths.
BY_UPDATE = [f"training.{events}.every=2500" for events in ("validation", "checkpoints")]
# Each with the recipe that was measured, and its changes.
GENERAL = {
    "deep-small": (
        "multi30k-en-de-deep",
        ["model.dropout={embedding: 0.2, residual: 0.2}", "training.max_minutes=null"],
    ),
    "deep-base": ("wang-2019/wmt16-en-de/pre-20", [*BY_UPDATE, "model.positions.first=0"]),
    "deep-large": ("li-2020/wmt14-en-fr/sdt-rpr-48", ["model.positions.first=0"]),
}


@pytest.mark.parametrize("name", GENERAL)
def test_a_general_recipe_is_the_measured_one_that_its_note_names(name):
    measured, changes = GENERAL[name]
    general, row = load_recipe(name), load_recipe(measured, changes)
    assert general.model == row.model
    assert general.training == row.training
    source = (row.reference.paper.partition(",")[0], row.reference.table)
    for word in filter(None, source):
        assert word in general.reference.note
    assert not general.reference.scores, "the score would be that of another text"


@pytest.mark.parametrize("name", GENERAL)
def test_a_general_recipe_names_no_language(name):
    stated = (ROOT / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")
    assert not re.search(r"^ *(source|target|lowercase|chinese):", stated, re.M)
