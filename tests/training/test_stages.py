"""Stages: their ends, and the changes of the next one."""

import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.position import DataPosition
from nmtdeep.training.stage_control import next_stage, stage_ended, stop_reason
from nmtdeep.training.state import Progress

STAGES = [
    {"encoder": 6, "epochs": 2},
    {"encoder": 12, "updates": 50, "max_tokens": 2048},
    {"tokens_per_update": 9000},
]


def recipe(stages=STAGES, **training):
    blocks = {"type": "sparse_blocks", "blocks": [0, 6, 12, 18]}
    model = {"encoder": {"depth": 18, "combination": blocks}}
    return Recipe.model_validate({"model": model, "training": {"stages": stages, **training}})


def test_each_stage_is_a_recipe_without_stages():
    stages = [recipe().at_stage(number) for number in range(3)]
    encoders = [stage.model.encoder for stage in stages]
    assert [each.depth for each in encoders] == [6, 12, 18]
    assert [each.combination.blocks for each in encoders] == [(0, 6), (0, 6, 12), (0, 6, 12, 18)]
    assert {stage.model.decoder.depth for stage in stages} == {6}
    batches = [stage.training.batches for stage in stages]
    assert [each.max_tokens for each in batches] == [None, 2048, None]
    assert [each.tokens_per_update for each in batches] == [25_000, 25_000, 9000]
    for stage in stages:  # each is a recipe that a file could hold
        assert stage.training.stages == ()
        assert Recipe.model_validate(stage.model_dump()) == stage
    assert Recipe().at_stage(0) == Recipe()


def test_a_stage_ends_after_its_epochs_or_updates():
    ends = [Progress(update=90, position=DataPosition(epoch)) for epoch in (0, 1, 2)]
    assert [stage_ended(recipe(), progress) for progress in ends] == [False, False, True]
    second = [Progress(u, DataPosition(2), stage=1, stage_update=90) for u in (90, 139, 140)]
    assert [stage_ended(recipe(), progress) for progress in second] == [False, False, True]
    third = Progress(update=10**6, position=DataPosition(99), stage=2)
    last = recipe([*STAGES[:2], {"updates": 5}])
    at_end = Progress(update=145, stage=2, stage_update=140)
    for stages, progress in ((recipe(), third), (last, at_end), (Recipe(), Progress(10**4))):
        assert not stage_ended(stages, progress)
    assert stop_reason(last, at_end)
    assert not stop_reason(recipe(max_updates=10**7), third)
    assert not stop_reason(Recipe(), Progress(update=10**4))


def test_new_batches_begin_an_epoch():
    here = Progress(update=140, position=DataPosition(4, 7), stage=1, validations_since_best=3)
    moved = next_stage(recipe(), here)
    assert moved.validations_since_best == 0
    assert (moved.position, moved.stage) == (DataPosition(5), 2)
    assert (moved.stage_update, moved.stage_epoch) == (140, 5)
    same = next_stage(recipe([*STAGES[:2], {}]), here)
    assert (same.position, same.stage_epoch) == (DataPosition(4, 7), 5)


@pytest.mark.parametrize(
    ("training", "word"),
    [
        ({"stages": [{"encoder": 6}, {}]}, "stage 1 has no end"),
        ({"stages": [{"encoder": 6, "epochs": 1}, {"encoder": 12}]}, r"\[6, 12\]"),
        ({"stages": [{"encoder": 24, "epochs": 1}, {}]}, "must rise"),
        ({"stages": [{"epochs": 1, "updates": 1}, {}]}, "not both"),
        ({"frozen": {"decoder": 7}}, "decoder 7"),
        ({"stages": [{"encoder": 6, "epochs": 1}, {}], "frozen": {"encoder": 7}}, "encoder 7"),
        (
            {"stages": [{"encoder": 4, "epochs": 1}, {}], "growth": {"strategy": "stack_all"}},
            "stack_all repeats",
        ),
    ],
)
def test_invalid_stages_are_refused(training, word):
    with pytest.raises(ValueError, match=word):
        recipe(**{"stages": [], **training})
