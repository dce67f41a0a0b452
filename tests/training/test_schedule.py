"""Learning rates by hand."""

import pytest

from nmtdeep.config.model import Model
from nmtdeep.config.optimizer import InverseSquareRoot, LinearDecay, Noam
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Training
from nmtdeep.training.schedule import learning_rate


def recipe_of(schedule, max_updates):
    training = Training(schedule=schedule, max_updates=max_updates)
    return Recipe(model=Model(width=16), training=training)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (
            InverseSquareRoot(lr=3.0, warmup_updates=4, warmup_init_lr=1.0),
            {1: 1.0, 2: 1.5, 3: 2.0, 5: 3.0, 17: 1.5},
        ),
        (Noam(scale=8.0, warmup_updates=4), {1: 0.25, 2: 0.5, 4: 1.0, 16: 0.5}),
        # Zero after the last update.
        (
            LinearDecay(lr=2.0, warmup_updates=4),
            {1: 0.5, 4: 2.0, 6: 1.5, 11: 0.25, 12: 0.0, 13: 0.0},
        ),
    ],
)
def test_the_values_of_the_recipe_are_used(schedule, rates):
    recipe = recipe_of(schedule, 11)
    assert {update: learning_rate(recipe, update) for update in rates} == rates


def test_the_width_of_noam_is_the_decoders():
    stacks = {"encoder": {"width": 64}, "decoder": {"width": 16}}
    model = Model.model_validate({**stacks, "embeddings": {"sharing": "none"}})
    recipe = recipe_of(Noam(scale=8.0, warmup_updates=4), 11).model_copy(update={"model": model})
    assert learning_rate(recipe, 4) == 1.0


def test_a_restarted_linear_schedule_falls_over_the_updates_that_remain():
    # At update 10 of 16 with a warm-up of 4, the schedule goes back to 4 updates done: it is at its
    # peak, and seven steps later, after update 16, at zero.
    recipe = recipe_of(LinearDecay(lr=7.0, warmup_updates=4), 16)
    rates = [learning_rate(recipe, update, 6) for update in range(10, 18)]
    assert rates == pytest.approx([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
