"""The opening table of a training, and models that no machine holds."""

from __future__ import annotations

from typing import Any

import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.training.memory import check_model_fits
from nmtdeep.training.opening import opening
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.state import Progress


def test_the_opening_table_ends_with_the_recipes_warnings(tiny_run: Any) -> None:
    values = tiny_run.recipe.model_dump()
    values["model"]["decoder"]["residual"] = "no_norm"
    recipe = Recipe.model_validate(values)
    lines = opening(recipe, tiny_run.data, Ranks(0, 1), Progress()).splitlines()
    assert lines[-1].startswith("warning     model.decoder.residual: no_norm lacks initializer")
    whole = opening(tiny_run.recipe, tiny_run.data, Ranks(0, 1), Progress()).splitlines()
    assert len(lines) == len(whole) + 1


@pytest.mark.parametrize("native", [True, False])
def test_the_opening_table_warns_of_emulated_bf16(
    native: bool, tiny_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("opening", "step"):
        monkeypatch.setattr(f"nmtdeep.training.{module}.native_bf16", lambda device: native)
    for precision, emulated in (("auto", False), ("fp32", False), ("bf16", not native)):
        values = tiny_run.recipe.model_dump()
        values["training"]["precision"] = precision
        lines = opening(Recipe.model_validate(values), tiny_run.data, Ranks(), Progress())
        assert ("\nwarning     cpu emulates bf16" in lines) == emulated, precision


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": {"depth": 1_000}, "width": 2**16},
        {"width": 8 * 10**9},
        {"decoder": {"feed_forward": 10**15}},
    ],
    ids=["layers", "width", "feed_forward"],
)
def test_a_model_larger_than_any_memory_is_refused_at_once(changes: dict[str, Any]) -> None:
    described = Recipe.model_validate({"model": changes}).model
    message = r"the weights of this model take [\d,.]+ [GT]B, .* has \d.*: lower model"
    with pytest.raises(UserError, match=message):
        check_model_fits(described, source_types=100, target_types=100)
