"""The opening table of a training, and models that no machine holds."""

import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.training.memory import check_model_fits
from nmtdeep.training.opening import check, opening
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress


def test_the_opening_table_ends_with_the_recipes_warnings(tiny_run):
    values = tiny_run.recipe.model_dump()
    values["model"]["decoder"]["residual"] = "no_norm"
    recipe = Recipe.model_validate(values)
    lines = opening(Setup(recipe, tiny_run.data), Progress()).splitlines()
    assert lines[-1].startswith("warning     model.decoder.residual: no_norm lacks initializer")
    whole = opening(Setup(tiny_run.recipe, tiny_run.data), Progress()).splitlines()
    assert len(lines) == len(whole) + 1


@pytest.mark.parametrize("native", [True, False])
def test_the_opening_table_warns_of_emulated_bf16(native, tiny_run, monkeypatch):
    for module in ("opening", "setup"):
        monkeypatch.setattr(f"nmtdeep.training.{module}.native_bf16", lambda device: native)
    for precision, emulated in (("auto", False), ("fp32", False), ("bf16", not native)):
        recipe = tiny_run.recipe.with_training(precision=precision)
        lines = opening(Setup(recipe, tiny_run.data), Progress())
        assert ("\nwarning     cpu emulates bf16" in lines) == emulated, precision


@pytest.mark.parametrize(
    ("changes", "takes"),
    [
        # 100 layers of 4 d^2 + 2 d f numbers and 6 of 8 d^2 + 2 d f, 4 bytes each
        ({"encoder": {"depth": 100}, "width": 2**16}, r"7\.8 TB"),
        ({"decoder": {"feed_forward": 10**15}}, r"[\d,.]+ TB"),
    ],
)
def test_a_model_larger_than_any_memory_is_refused_at_once(changes, takes):
    described = Recipe.model_validate({"model": changes}).model
    with pytest.raises(UserError, match=rf"model take {takes}, .*: lower model"):
        check_model_fits(described, source_types=100, target_types=100)


def test_idle_ranks_of_any_stage_are_refused(tiny_run):
    values = tiny_run.recipe.model_dump()
    batches = {"tokens_per_update": 800, "group_tokens": 400, "max_tokens": 400}
    values["training"] |= {"batches": batches, "stages": [{"updates": 1}, {}]}
    check(Recipe.model_validate(values), tiny_run.data, Ranks(0, 2))
    with pytest.raises(UserError, match="267 or fewer"):
        check(Recipe.model_validate(values), tiny_run.data, Ranks(0, 3))
    values["training"]["stages"] = [{"updates": 1}, {"tokens_per_update": 400}]
    with pytest.raises(UserError, match="updates of 400 tokens"):
        check(Recipe.model_validate(values), tiny_run.data, Ranks(0, 2))
