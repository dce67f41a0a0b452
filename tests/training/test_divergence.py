"""Numbers that are not finite: survived, or reported with update, layer and what to try."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import RankBatches, read_batch
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import DivergenceError
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.recorder import figures
from nmtdeep.training.result import UpdateResult
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress
from nmtdeep.training.trainer import Trainer
from training.in_ranks import in_ranks


def recipe_of(tiny_run: Any, **training: Any) -> Recipe:
    settings = {"precision": "fp32", **training}
    schedule = {"type": "inverse_square_root", "lr": 0.01, "warmup_updates": 2}
    return Recipe.model_validate(
        tiny_run.recipe.model_dump() | {"training": {"schedule": schedule, **settings}}
    )


def shares(data: DataDirectory, ranks: Ranks = ALONE) -> list[RankBatches]:
    """Updates of two batches; of two processes each has one."""
    corpus = data.corpus("train")
    results = []
    for first in range(0, 48, 8):
        whole = RankBatches.single(
            [read_batch(corpus, np.arange(at, at + 4)) for at in (first, first + 4)]
        )
        own = whole.batches if ranks.size == 1 else whole.batches[ranks.rank :][:1]
        results.append(
            RankBatches(
                own, whole.target_tokens, whole.padded_tokens, whole.real_tokens,
                max_batches_of_a_rank=len(own),
            )
        )  # fmt: skip
    return results


def run(trainer: Trainer, updates: list[RankBatches], progress: Progress) -> Progress:
    for share in updates:
        done = trainer.train(share, progress)
        progress = noted(progress.after_update(progress.position), done)
        progress = noted(progress, trainer.finish(progress))
    return progress


def noted(progress: Progress, results: list[UpdateResult]) -> Progress:
    for result in results:
        progress = progress.after_result(bad=result.is_bad)
    return progress


def trained(trainer: Trainer, share: RankBatches) -> UpdateResult:
    trainer.train(share, Progress())
    (result,) = trainer.finish(Progress())
    return result


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("encoder.layers.1.sublayers.0", "SelfAttention"),
        ("decoder.layers.0.sublayers.1", "CrossAttention"),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_weights_that_are_not_finite_are_named_by_layer(bad, place, kind, precision, tiny_run):
    trainer = Trainer(Setup(recipe_of(tiny_run, precision=precision), tiny_run.data))
    sublayer = trainer.model.get_submodule(f"{place}.sublayer")
    next(iter(sublayer.parameters())).data[0] = bad
    before = weights(trainer)
    with pytest.raises(DivergenceError) as caught:
        run(trainer, shares(tiny_run.data), Progress(update=6))
    said = str(caught.value)
    assert said.startswith("training diverged at update 9: loss nan per token")
    assert f"{place} ({kind}) is the first module whose output is not finite" in said
    assert "nothing is saved yet; try half the learning rate, twice the warm-up or" in said
    torch.testing.assert_close(weights(trainer), before, rtol=0, atol=0, equal_nan=True)


def test_weights_that_relu_hides_are_named(tiny_run):
    """On a CPU max(NaN, 0) = 0: the forward pass is finite, the gradient is not."""
    trainer = Trainer(Setup(recipe_of(tiny_run), tiny_run.data))
    sublayer = trainer.model.get_submodule("encoder.layers.1.sublayers.1.sublayer")
    next(iter(sublayer.parameters())).data[0] = math.nan
    with pytest.raises(
        DivergenceError, match=r"encoder\.layers\.1\.sublayers\.1\.\S+ is not finite"
    ):
        run(trainer, shares(tiny_run.data), Progress())


def test_the_layer_is_named_in_a_model_of_compiled_layers(tiny_run):
    trainer = Trainer(Setup(recipe_of(tiny_run), tiny_run.data))
    trainer.model.compile_layers(backend="eager")
    place = "encoder.layers.1.sublayers.1"
    with torch.no_grad():
        trainer.model.get_submodule(f"{place}.sublayer.outer").bias.fill_(math.inf)
    name = rf"{place} \(FeedForward\) is the first module whose output".replace(".", r"\.")
    with pytest.raises(DivergenceError, match=name):
        run(trainer, shares(tiny_run.data), Progress())


def test_gradients_that_are_not_finite_are_named_by_layer(tiny_run):
    trainer = Trainer(Setup(recipe_of(tiny_run), tiny_run.data), tiny_run.newer)
    updates = shares(tiny_run.data)
    progress = run(trainer, updates[:3], Progress(update=20))
    name = "decoder.layers.0.sublayers.2.norm.weight"
    trainer.model.get_parameter(name).register_hook(lambda gradient: gradient * 0 + math.inf)
    with pytest.raises(DivergenceError) as caught:
        run(trainer, updates[3:], progress)
    said = str(caught.value)
    assert "update 26" in said and "gradient norm inf" in said
    assert f"all outputs are finite, but the gradient of {name} is not" in said
    assert "checkpoint_20 is intact, and training resumes from it" in said


def test_one_bad_update_is_survived_as_if_it_had_not_been(tiny_run):
    recipe, updates = recipe_of(tiny_run), shares(tiny_run.data)
    hurt, spared = (Trainer(Setup(recipe, tiny_run.data)) for _ in range(2))
    progress = run(hurt, updates[:2], Progress())
    hook = hurt.model.encoder.norm.weight.register_hook(lambda gradient: gradient * math.nan)
    progress = run(hurt, updates[2:4], progress)
    assert progress.bad_updates == 2
    hook.remove()
    progress = run(hurt, updates[4:], progress)
    assert (progress.update, progress.bad_updates) == (6, 0)
    run(spared, updates[:2], Progress())
    run(spared, updates[4:], Progress(update=4))
    assert all(map(torch.equal, weights(hurt), weights(spared)))


def test_bad_updates_in_a_row_are_counted_over_a_resumption(tiny_run):
    twice = Progress(update=6).after_result(bad=True)
    twice = Progress.from_json(twice.after_result(bad=True).to_json())
    trainer = Trainer(Setup(recipe_of(tiny_run), tiny_run.data))
    trainer.model.encoder.norm.weight.register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(DivergenceError, match="update 7"):
        run(trainer, shares(tiny_run.data)[:1], twice)
    assert twice.after_result(bad=False).bad_updates == 0


def test_a_loss_scale_that_collapses_is_named(tiny_run):
    trainer = Trainer(Setup(recipe_of(tiny_run), tiny_run.data))
    trainer.step.passes.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-7)
    trainer.model.encoder.norm.weight.register_hook(lambda gradient: gradient * math.inf)
    # 2^-8, -9, -10 are borne, 2^-11 is not.
    with pytest.raises(DivergenceError, match=r"update 4: fp16's loss scale fell to 4\.9e-04"):
        run(trainer, shares(tiny_run.data), Progress())


class Fp16(Setup):
    dtype = torch.float16


def fp16_trainer(tiny_run: Any, scale: float) -> Trainer:
    """Real fp16: the program does not offer it on a CPU, where it is too slow."""
    trainer = Trainer(Fp16(recipe_of(tiny_run), tiny_run.data))
    trainer.step.passes.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    return trainer


def test_gradients_beyond_fp16_halve_the_scale_until_they_fit(tiny_run):
    trainer = fp16_trainer(tiny_run, 2.0**33)
    start, share = weights(trainer), shares(tiny_run.data)[0]
    seen = [trained(trainer, share)]
    while seen[-1].skipped:
        assert all(map(torch.equal, weights(trainer), start)) and not seen[-1].is_bad
        seen.append(trained(trainer, share))
    assert len(seen) > 3 and seen[-1].scale == 2.0**33 / 2 ** (len(seen) - 1)
    exact = Trainer(Setup(recipe_of(tiny_run), tiny_run.data))
    right = trained(exact, share)
    assert seen[-1].loss == pytest.approx(right.loss, rel=2e-3)
    assert seen[-1].gradient_norm == pytest.approx(right.gradient_norm, rel=2e-2)


def test_outputs_beyond_fp16_are_named_by_layer(tiny_run):
    trainer = fp16_trainer(tiny_run, 2.0**16)
    outer = trainer.model.get_submodule("encoder.layers.1.sublayers.1.sublayer.outer")
    with torch.no_grad():
        outer.bias.fill_(7e4)  # fp32 and bf16 hold it, fp16 ends at 65,504
    name = r"encoder\.layers\.1\.sublayers\.1 \(FeedForward\) is the first module whose output"
    with pytest.raises(DivergenceError, match=rf"loss scale fell to 4\.9e-04; .*{name}"):
        run(trainer, shares(tiny_run.data) * 5, Progress())


def go_wrong(ranks: Ranks, recipes: list[Recipe], data: Path) -> list[str]:
    """Only what the second process computes is wrong; what this one says of it."""
    return [_wrong(ranks, recipe, data) for recipe in recipes]


def _wrong(ranks: Ranks, recipe: Recipe, data: Path) -> str:
    trainer = Trainer(Setup(recipe, DataDirectory.open(data), ranks))
    if ranks.rank:
        trainer.model.get_submodule("decoder.layers.1.sublayers.0").register_forward_hook(
            lambda module, inputs, output: output * math.nan
        )
    try:
        run(trainer, shares(trainer.setup.data, ranks), Progress())
    except DivergenceError as error:
        return str(error)
    return ""


def test_all_ranks_stop_together_and_the_first_knows_the_layer(tiny_run):
    recipes = [recipe_of(tiny_run, sharding=sharding) for sharding in ("none", "full")]
    messages = in_ranks(2, go_wrong, recipes, tiny_run.data.path)
    for said in messages:
        assert said.startswith("training diverged at update 3")
        assert "decoder.layers.1.sublayers.0 (SelfAttention) is the first module" in said


def test_means_exclude_skipped_updates():
    done = UpdateResult(20.0, 10.0, 10, 20, 20, 3.0, skipped=False)
    skipped = UpdateResult(math.nan, math.nan, 90, 20, 20, math.inf, skipped=True)
    means = figures([done, skipped], seconds=4.0, waited=1.0)
    assert (means["loss"], means["nll"], means["gradient_norm"]) == (2.0, 1.0, 3.0)
    assert (means["skipped"], means["tokens_per_update"], means["wait"]) == (1, 50, 0.25)


def test_a_validation_with_a_score_of_nan_is_not_the_best():
    progress = Progress(update=3).validated(math.nan)
    assert (progress.best, progress.score) == (None, None)
    assert (progress.is_best, progress.validations_since_best) == (False, 1)
    assert progress.validated(-5.0).best == -5.0


def test_results_come_one_update_late_and_change_nothing(tiny_run):
    updates, progress = shares(tiny_run.data), Progress()
    late, prompt = (Trainer(Setup(recipe_of(tiny_run), tiny_run.data)) for _ in range(2))
    results = []
    for share in updates:
        results.append(late.train(share, progress))
        progress = progress.after_update(progress.position)
    run(prompt, updates, Progress())
    assert [[each.number for each in some] for some in results] == [[], [1], [2], [3], [4], [5]]
    assert [each.number for each in late.finish(progress)] == [6]
    assert late.finish(progress) == []
    assert all(map(torch.equal, weights(late), weights(prompt)))


def test_no_update_follows_those_that_are_lost(tiny_run):
    trainer, progress = Trainer(Setup(recipe_of(tiny_run), tiny_run.data)), Progress()
    before, share = weights(trainer), shares(tiny_run.data)[0]
    hook = trainer.model.encoder.norm.weight.register_hook(lambda gradient: gradient * math.nan)
    for _ in range(3):
        progress = noted(progress.after_update(progress.position), trainer.train(share, progress))
    hook.remove()  # the next update would be a good one
    with pytest.raises(DivergenceError, match="update 3"):
        trainer.train(share, progress)
    assert all(map(torch.equal, weights(trainer), before))
