"""Numbers that are not finite: survived, or reported with update, layer and what to try."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from nmtdeep.data.batch import RankBatches, read_batch
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import DivergenceError
from nmtdeep.training.ranks import ALONE
from nmtdeep.training.recorder import figures
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress
from nmtdeep.training.step import UpdateResult
from nmtdeep.training.trainer import Trainer
from training.in_ranks import in_ranks
from training.tiny import equal, recipe_of, values

WARM = {"type": "inverse_square_root", "lr": 0.01, "warmup_updates": 2}


def setup_of(tiny_run, **training):
    recipe = recipe_of(tiny_run, **{"precision": "fp32", "schedule": WARM, **training})
    return Setup(recipe, tiny_run.data)


def shares(data, ranks=ALONE):
    """Updates of two batches; of two processes each has one."""
    corpus, results = data.corpus("train"), []
    for first in range(0, 48, 8):
        pairs = [np.arange(at, at + 4) for at in (first, first + 4)]
        whole = RankBatches.single([read_batch(corpus, each) for each in pairs])
        if ranks.size > 1:
            own = [whole.batches[ranks.rank]]
            whole = replace(whole, batches=own)
        results.append(whole)
    return results


def run(trainer, updates, progress):
    for share in updates:
        done = trainer.train(share, progress)
        progress = noted(progress.after_update(progress.position), done)
        progress = noted(progress, trainer.finish(progress))
    return progress


def noted(progress, results):
    for result in results:
        progress = progress.after_result(bad=result.is_bad)
    return progress


@pytest.mark.parametrize(
    ("bad", "place", "kind", "precision"),
    [
        (math.nan, "encoder.layers.1.sublayers.0", "SelfAttention", "fp32"),
        (math.inf, "decoder.layers.0.sublayers.1", "CrossAttention", "bf16"),
    ],
)
def test_weights_that_are_not_finite_are_named_by_layer(bad, place, kind, precision, tiny_run):
    trainer = Trainer(setup_of(tiny_run, precision=precision))
    sublayer = trainer.model.get_submodule(f"{place}.sublayer")
    next(iter(sublayer.parameters())).data[0] = bad
    before = values(trainer.model)
    with pytest.raises(DivergenceError) as caught:
        run(trainer, shares(tiny_run.data), Progress(update=6))
    said = str(caught.value)
    assert said.startswith("training diverged at update 9: loss nan per token")
    assert f"{place} ({kind}) is the first module whose output is not finite" in said
    assert "nothing is saved yet" in said
    torch.testing.assert_close(values(trainer.model), before, rtol=0, atol=0, equal_nan=True)


def test_weights_that_relu_hides_are_named(tiny_run):
    """On a CPU max(NaN, 0) = 0: the forward pass is finite, the gradient is not."""
    trainer = Trainer(setup_of(tiny_run))
    place = "encoder.layers.1.sublayers.1"
    next(iter(trainer.model.get_submodule(place).sublayer.parameters())).data[0] = math.nan
    with pytest.raises(DivergenceError, match=rf"{place}\.\S+ is not finite"):
        run(trainer, shares(tiny_run.data), Progress())


@pytest.mark.slow
def test_the_layer_is_named_in_a_model_of_compiled_layers(tiny_run):
    trainer = Trainer(setup_of(tiny_run))
    trainer.model.compile_layers(backend="eager")
    place = "encoder.layers.1.sublayers.1"
    with torch.no_grad():
        trainer.model.get_submodule(f"{place}.sublayer.outer").bias.fill_(math.inf)
    with pytest.raises(DivergenceError, match=rf"{place} \(FeedForward\) is the first module"):
        run(trainer, shares(tiny_run.data), Progress())


def test_gradients_that_are_not_finite_are_named_by_layer(tiny_run):
    trainer = Trainer(setup_of(tiny_run), tiny_run.newer)
    updates = shares(tiny_run.data)
    progress = run(trainer, updates[:3], Progress(update=20))
    name = "decoder.layers.0.sublayers.2.norm.weight"
    trainer.model.get_parameter(name).register_hook(lambda gradient: gradient * 0 + math.inf)
    said = rf"update 26.*gradient norm inf.*the gradient of {name} is not.*checkpoint_20 is intact"
    with pytest.raises(DivergenceError, match=said):
        run(trainer, updates[3:], progress)


def test_one_bad_update_is_survived_as_if_it_had_not_been(tiny_run):
    updates = shares(tiny_run.data)
    hurt, spared = (Trainer(setup_of(tiny_run)) for _ in range(2))
    progress = run(hurt, updates[:2], Progress())
    hook = hurt.model.encoder.norm.weight.register_hook(lambda gradient: gradient * math.nan)
    progress = run(hurt, updates[2:4], progress)
    assert progress.bad_updates == 2
    hook.remove()
    progress = run(hurt, updates[4:], progress)
    assert (progress.update, progress.bad_updates) == (6, 0)
    run(spared, updates[:2], Progress())
    run(spared, updates[4:], Progress(update=4))
    assert equal(values(hurt.model), values(spared.model))


def test_bad_updates_in_a_row_are_counted_over_a_resumption(tiny_run):
    twice = Progress(update=6).after_result(bad=True)
    twice = Progress.from_json(twice.after_result(bad=True).to_json())
    trainer = Trainer(setup_of(tiny_run))
    trainer.model.encoder.norm.weight.register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(DivergenceError, match="update 7"):
        run(trainer, shares(tiny_run.data)[:1], twice)
    assert twice.after_result(bad=False).bad_updates == 0


class Fp16(Setup):
    """Real fp16: the program does not offer it on a CPU, where it is too slow."""

    dtype = torch.float16


def test_outputs_beyond_fp16_are_named_by_layer(tiny_run):
    trainer = Trainer(Fp16(setup_of(tiny_run).recipe, tiny_run.data))
    trainer.step.passes.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    place = "encoder.layers.1.sublayers.1"
    with torch.no_grad():  # fp32 and bf16 hold it, fp16 ends at 65,504
        trainer.model.get_submodule(f"{place}.sublayer.outer").bias.fill_(7e4)
    # 2^-8, -9, -10 are borne, 2^-11 is not.
    with pytest.raises(DivergenceError, match=rf"fell to 4\.9e-04; .*{place} \(FeedForward\) is"):
        run(trainer, shares(tiny_run.data) * 5, Progress())


def go_wrong(ranks, recipe, data):
    """Only what the second process computes is wrong; what this one says of it."""
    trainer = Trainer(Setup(recipe, DataDirectory.open(data), ranks))
    if ranks.rank:
        trainer.model.get_submodule("decoder.layers.1.sublayers.0").register_forward_hook(
            lambda module, inputs, output: output * math.nan
        )
    with pytest.raises(DivergenceError) as caught:
        run(trainer, shares(trainer.setup.data, ranks), Progress())
    return str(caught.value)


def test_all_ranks_stop_together_and_the_first_knows_the_layer(tiny_run):
    said = in_ranks(2, go_wrong, setup_of(tiny_run).recipe, tiny_run.data.path)
    assert said.startswith("training diverged at update 3")
    assert "decoder.layers.1.sublayers.0 (SelfAttention) is the first module" in said


def test_means_exclude_skipped_updates():
    done = UpdateResult(20.0, 10.0, 10, 20, 20, 3.0, skipped=False)
    skipped = UpdateResult(math.nan, math.nan, 90, 20, 20, math.inf, skipped=True)
    means = figures([done, skipped], seconds=4.0, waited=1.0)
    assert (means["loss"], means["nll"], means["gradient_norm"]) == (2.0, 1.0, 3.0)
    assert (means["skipped"], means["tokens_per_update"], means["wait"]) == (1, 50, 0.25)


def test_results_come_one_update_late_and_change_nothing(tiny_run):
    updates, progress = shares(tiny_run.data), Progress()
    late, prompt = (Trainer(setup_of(tiny_run)) for _ in range(2))
    results = []
    for share in updates:
        results.append(late.train(share, progress))
        progress = progress.after_update(progress.position)
    run(prompt, updates, Progress())
    assert [[each.number for each in some] for some in results] == [[], [1], [2], [3], [4], [5]]
    assert [each.number for each in late.finish(progress)] == [6]
    assert late.finish(progress) == []
    assert equal(values(late.model), values(prompt.model))


def test_no_update_follows_those_that_are_lost(tiny_run):
    trainer, progress = Trainer(setup_of(tiny_run)), Progress()
    before, share = values(trainer.model), shares(tiny_run.data)[0]
    hook = trainer.model.encoder.norm.weight.register_hook(lambda gradient: gradient * math.nan)
    for _ in range(3):
        progress = noted(progress.after_update(progress.position), trainer.train(share, progress))
    hook.remove()  # the next update would be a good one
    with pytest.raises(DivergenceError, match="update 3"):
        trainer.train(share, progress)
    assert equal(values(trainer.model), before)
