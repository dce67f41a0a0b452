"""Where stages and trainings end: epochs, patience, limits, time, signals; what is left then."""

import json
import math
import os
import signal
from types import SimpleNamespace

import pytest

from nmtdeep import checkpoint
from nmtdeep.averaging import average
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError
from nmtdeep.growing import grow
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.training.estimate import estimate
from nmtdeep.training.loop import train
from nmtdeep.training.opening import check, dry_run
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.run_directory import RunDirectory
from nmtdeep.training.setup import TrainingJob
from nmtdeep.training.stage_control import stop_reason
from nmtdeep.training.state import Progress
from training.tiny import recipe_of, trained

LOSS = {"bleu": False, "best_by": "loss"}
SMALL = {
    "batches": {"tokens_per_update": 200, "group_tokens": 200},
    "checkpoints": {"every": 500},
    "validation": {"every": 500, **LOSS},
    "max_updates": 500,
}


@pytest.fixture(scope="module")
def two(tiny_run, tmp_path_factory):
    """The tiny run with two training corpora: 30 of its pairs, and the others."""
    folder, old = tmp_path_factory.mktemp("two"), tiny_run.data.path.parent
    for language in tiny_run.data.languages:
        lines = (old / f"train.{language}").read_text("utf-8").splitlines(keepends=True)
        for name, chosen in (("a", lines[:30]), ("b", lines[30:])):
            (folder / f"{name}.{language}").write_text("".join(chosen), "utf-8")
    files = CorpusFiles({name: folder / name for name in "ab"}, old / "valid")
    usual = {"recipe": tiny_run.recipe, "pipeline": tiny_run.pipeline}
    Preprocessing(**usual, corpora=files, out=folder / "data").run()
    data = DataDirectory.open(folder / "data")
    return SimpleNamespace(**{**vars(tiny_run), "data": data})


CURRICULUM = [
    {"updates": 2},
    {"epochs": 6, "epochs_of": "b", "mixture": {"a": 0.7, "b": 0.3}},
]


@pytest.mark.parametrize(
    "length",
    [{"max_epochs": 6, "mixture": {"a": 0.2, "b": 0.8}}, {"stages": CURRICULUM}],
    ids=["epochs", "curriculum"],
)
def test_an_estimate_has_the_updates_of_a_mixture(two, tmp_path, length):
    run = trained(two, tmp_path / "run", **SMALL | length)
    text = estimate(TrainingJob(recipe_of(two, **SMALL | length), two.data, device="cpu"))
    said = float(text.partition("updates")[2].split(",")[0])
    done = Progress.of(run / "checkpoint_last").update
    # Groups are drawn: the length is a random number, whose mean is estimated.
    assert said == pytest.approx(done, rel=0.45)


def test_a_stage_in_epochs_has_them_whole(tiny_run, tmp_path):
    """The first stage ends inside an epoch, of which the second has the rest and one more."""
    stages = [{"updates": 3}, {"epochs": 1}]
    end = Progress.of(
        trained(tiny_run, tmp_path / "run", **SMALL, stages=stages) / "checkpoint_last"
    )
    whole = Progress.of(
        trained(tiny_run, tmp_path / "whole", **SMALL, max_epochs=1) / "checkpoint_last"
    )
    assert whole.update > 3 and end.update == 2 * whole.update


def test_patience_does_not_end_what_a_stage_would_end():
    """It starts again with a deeper model, and goes on with the same model."""
    stages = ({"encoder": 3, "updates": 6}, {"updates": 4})
    described = {"training": {"stages": stages, "validation": {"patience": 1}}}
    recipe = Recipe.model_validate(described)
    progress = Progress(update=5, validations_since_best=1, best_update=3, best=0.0)
    assert "no better validation" in stop_reason(recipe, progress)
    assert not stop_reason(recipe, Progress(6, validations_since_best=1, best=0.0))
    described["training"]["stages"] = (
        {"updates": 6},
        {"updates": 4, "mixture": {"temperature": 2.0}},
    )
    recipe = Recipe.model_validate(described)
    assert stop_reason(recipe, Progress(6, validations_since_best=1, best=0.0))


def test_a_stage_whose_first_epoch_is_one_too_many_does_not_begin(tiny_run, tmp_path):
    stages = [{"encoder": 1, "updates": 7}, {"encoder": 2, "tokens_per_update": 400}]
    described = {**SMALL, "stages": stages, "max_epochs": 1}
    first = trained(tiny_run, tmp_path / "first", **SMALL, max_epochs=1) / "checkpoint_last"
    stages[0]["updates"] = Progress.of(first).update - 1
    run = trained(tiny_run, tmp_path / "run", **described)
    state = json.loads((run / "checkpoint_last" / checkpoint.STATE).read_text("utf-8"))
    assert (state["stage"], state["update"]) == (0, stages[0]["updates"])
    average([run / "checkpoint_last"], run / checkpoint.AVERAGE)
    trained(tiny_run, run, **described)
    assert (run / checkpoint.AVERAGE).exists(), "nothing was left to do"
    assert "stage 2" not in (run / "train.log").read_text("utf-8")


def test_the_time_between_stages_counts(tiny_run, tmp_path):
    """Each look at the clock is a second; all looks but the first and the last few are counted."""
    looks = iter(range(10**6))
    latest = [0]

    def clock():
        latest[0] = next(looks)
        return float(latest[0])

    stages = [{"updates": 2}, {"updates": 2}, {"updates": 2}, {"updates": 2}]
    run = trained(tiny_run, tmp_path / "run", clock=clock, **SMALL, stages=stages)
    seconds = Progress.of(run / "checkpoint_last").seconds
    assert seconds >= latest[0] - 12


def test_a_signal_in_the_last_update_is_not_lost(tiny_run, tmp_path):
    calls = []

    def clock():
        calls.append(1)
        if (tmp_path / "run" / "train.log").exists() and len(calls) == 12:
            os.kill(os.getpid(), signal.SIGTERM)
        return float(len(calls))

    trained(
        tiny_run, tmp_path / "run", code=signal.SIGTERM, clock=clock, **{**SMALL, "max_updates": 2}
    )
    assert Progress.of(tmp_path / "run" / "checkpoint_last").update == 2


def test_a_mixture_without_the_first_corpus_has_no_epochs(two):
    mixture = {"mixture": {"b": 1.0}}
    for more in ({"max_epochs": 2}, {"checkpoints": {"every": "1 epoch"}}):
        recipe = recipe_of(two, **{**SMALL, **mixture, **more})
        with pytest.raises(UserError, match="epochs are those of a, which is not in the mixture"):
            check(recipe, two.data, Ranks())
    check(recipe_of(two, **SMALL, **mixture), two.data, Ranks())
    stages = [{"updates": 2}, mixture]
    with pytest.raises(UserError, match="epochs are those of a"):
        check(recipe_of(two, **SMALL, stages=stages, max_epochs=3), two.data, Ranks())
    recipe = recipe_of(two, **SMALL | {"max_updates": 60}, stages=stages)
    assert "60" in estimate(TrainingJob(recipe, two.data, device="cpu"))


def test_something_must_be_left_to_train(tiny_run, tmp_path):
    described = tiny_run.recipe.model_dump() | {"training": SMALL}
    described["model"]["encoder"]["residual"] = "post_norm"
    depth = described["model"]["encoder"]["depth"]
    frozen = {"frozen": {"encoder": depth, "decoder": "all", "embeddings": True}}
    run = trained(tiny_run, tmp_path / "run", **{**SMALL, "max_updates": 2})
    before = sorted(path.name for path in run.iterdir())
    for training in (frozen, {"stages": [{"updates": 2}, frozen]}):
        recipe = Recipe.model_validate({**described, "training": SMALL | training})
        job = TrainingJob(recipe, tiny_run.data, run, "cpu", overwrite=True)
        for attempt in (dry_run, lambda each: train(each, quiet=True)):
            with pytest.raises(UserError, match="leaves nothing to train"):
                attempt(job)
    assert sorted(path.name for path in run.iterdir()) == before


def test_results_of_before_the_end_are_deleted_at_the_end(tiny_run, tmp_path, monkeypatch):
    """An average that is made while the training runs is of checkpoints that are older."""
    settings = {**SMALL, "max_updates": 4, "checkpoints": {"every": 1, "keep_last": 9}}
    save = RunDirectory.save

    def saved(self, *given, **named):
        path = save(self, *given, **named)
        if len(checkpoint.saved(self.path)) == 2:
            average([*checkpoint.saved(self.path).values()], self.path / checkpoint.AVERAGE)
        return path

    monkeypatch.setattr(RunDirectory, "save", saved)
    run = trained(tiny_run, tmp_path / "run", **settings)
    assert not (run / checkpoint.AVERAGE).exists()


def test_what_is_not_trained_with_is_not_stored(tiny_run, tmp_path):
    settings = {**SMALL, "max_updates": 3}
    run = trained(tiny_run, tmp_path / "run", **settings)
    before = (run / checkpoint.CONFIG).read_bytes()
    trained(tiny_run, run, **settings, schedule={"type": "inverse_square_root", "lr": 5.0})
    assert (run / checkpoint.CONFIG).read_bytes() == before
    trained(tiny_run, run, **{**settings, "max_updates": 4})
    assert (run / checkpoint.CONFIG).read_bytes() != before


def test_another_loss_is_another_measure_of_the_best(tiny_run, tmp_path):
    run = trained(tiny_run, tmp_path / "run", **{**SMALL, "max_updates": 3})
    with pytest.raises(UserError, match=r"training.label_smoothing: 0.1 -> 0.3"):
        trained(tiny_run, run, **{**SMALL, "max_updates": 6}, label_smoothing=0.3)
    scored = {**SMALL, "max_updates": 2, "validation": {"every": 500}}
    run = trained(tiny_run, tmp_path / "bleu", **scored)
    trained(tiny_run, run, **{**scored, "max_updates": 3}, label_smoothing=0.3)


def test_a_growth_that_fails_leaves_nothing_to_train(tiny_run, tmp_path, monkeypatch):
    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="space"):
        patch.setattr(RunDirectory, "save", fails)
        grow(tiny_run.newer, out=tmp_path / "grown", depths={"encoder": 3})
    assert not (tmp_path / "grown" / checkpoint.CONFIG).exists()
    grow(tiny_run.newer, out=tmp_path / "grown", depths={"encoder": 3})
    (path,) = checkpoint.saved(tmp_path / "grown").values()
    assert not checkpoint.is_planned(checkpoint.read_state(path)), "no part of an average"


@pytest.mark.parametrize(("lr", "warns"), [(1e-3, False), (9.0, True)])
def test_a_training_that_becomes_worse_than_guessing_is_warned_of(tiny_run, tmp_path, lr, warns):
    schedule = {"type": "inverse_square_root", "lr": lr, "warmup_updates": 1}
    run = trained(tiny_run, tmp_path / "run", **{**SMALL, "max_updates": 6}, schedule=schedule)
    chance = math.log(len(tiny_run.pipeline.target.vocabulary))
    said = f"is worse than guessing ({chance:.1f}): try half the learning rate"
    assert (said in (run / "train.log").read_text("utf-8")) is warns
