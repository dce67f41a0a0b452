"""A run that starts from the weights of another: those weights, a new optimizer, nothing else."""

import hashlib
import json
import shutil
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nmtdeep import checkpoint
from nmtdeep.config.load import read_config
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.stages import Frozen, StartFrom
from nmtdeep.config.training import Training
from nmtdeep.data.batch import RankBatches, read_batch
from nmtdeep.errors import UserError
from nmtdeep.growing import grow
from nmtdeep.model.build import build, initialize
from nmtdeep.training.run_directory import open_run
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress
from nmtdeep.training.step import Step
from nmtdeep.training.trainer import Trainer, freeze
from training.tiny import equal, values


def recipe_from(tiny_run, path, **changes):
    """The recipe of the tiny run, to start from `path`, with other values of sections."""
    values = tiny_run.recipe.model_dump(mode="json")
    if path is not None:
        values["training"]["start_from"] = {"path": str(path)}
    for key, value in changes.items():
        section, _, name = key.partition("__")
        values[section][name] = value
    return Recipe.model_validate(values)


def started_run(tiny_run, out, recipe, **options):
    with open_run(out, recipe, tiny_run.pipeline, **options) as run:
        return run


def test_after_no_update_the_weights_are_those_of_the_checkpoint(tiny_run, tmp_path):
    run = started_run(tiny_run, tmp_path / "run", recipe_from(tiny_run, tiny_run.older))
    first = run.newest()
    assert first is not None and first.name == "checkpoint_0"
    assert equal(
        load_file(first / "model.safetensors"), load_file(tiny_run.older / checkpoint.MODEL)
    )
    assert sorted(path.name for path in first.iterdir()) == [
        *("SHA256SUMS", "config.yaml", "model.safetensors", "state.json", "text"),
    ]
    assert Progress.of(first) == Progress()


def test_the_config_says_where_the_weights_come_from(tiny_run, tmp_path):
    started_run(tiny_run, tmp_path / "run", recipe_from(tiny_run, tiny_run.path))
    weights = (tiny_run.newer / "model.safetensors").read_bytes()  # what a run means
    expected = StartFrom(
        path=str(tiny_run.path),
        checkpoint=tiny_run.newer.name,
        sha256=hashlib.sha256(weights).hexdigest(),
    )
    for config in (tmp_path / "run", tmp_path / "run/checkpoint_0"):
        assert read_config(config).training.start_from == expected


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_the_first_update_is_that_of_a_new_optimizer(tiny_run, tmp_path, optimizer):
    """And keys that change no weight may differ."""
    recipe = recipe_from(
        tiny_run,
        tiny_run.newer,
        training__optimizer={"type": optimizer},
        training__schedule={"type": "linear", "lr": 0.01, "warmup_updates": 5},
        training__label_smoothing=0.0,
        model__dropout={"residual": 0.3},
        model__initializer={"type": "lipschitz"},
    )
    start = started_run(tiny_run, tmp_path / "run", recipe).newest()
    share = RankBatches.single([read_batch(tiny_run.data.corpus("train"), np.arange(20))])
    trainer = Trainer(Setup(recipe.with_training(precision="fp32"), tiny_run.data), start)
    by_hand = checkpoint.load_model(start).model
    assert equal(values(by_hand), load_file(tiny_run.newer / checkpoint.MODEL))
    assert trainer.train(share, Progress.of(start)) == []
    (result,) = trainer.finish(Progress.of(start))
    assert learning_rate(recipe, 1) == pytest.approx(0.01 / 5)
    assert Step(by_hand, recipe.training).update(share, 1, 0.01 / 5) == result
    assert equal(values(trainer.model), values(by_hand))


TABLES = ("source_embedding.", "target_embedding.", "output.")


@pytest.mark.parametrize(
    ("frozen", "kept"),
    [
        ({"decoder": "all"}, ("decoder.",)),
        ({"encoder": "all", "embeddings": True}, ("encoder.", *TABLES)),
        ({"encoder": 1}, ("encoder.layers.0.",)),
        ({}, ()),
    ],
)
@pytest.mark.parametrize(("sharing", "optimizer"), [("all", "adam"), ("none", "muon")])
def test_frozen_parts_keep_their_bits_and_all_others_move(
    tiny_model, make_batch, frozen, kept, sharing, optimizer
):
    model = tiny_model(sharing=sharing, bias=True, combinations=("dlcl", "dlcl"))
    freeze(model, Frozen.model_validate(frozen))
    before = values(model)
    settings = {"optimizer": {"type": optimizer}, "label_smoothing": 0.1}
    step = Step(model, Training.model_validate(settings))
    sources = [[number, number + 4, 1] for number in range(3, 16)]
    targets = [[number + 3, 1] for number in range(3, 16)]
    for update in (1, 2):
        step.update(RankBatches.single([make_batch(sources, targets)]), update, 0.01)
    after = values(model)
    unmoved = {name for name in before if torch.equal(before[name], after[name])}
    assert unmoved >= {name for name in before if name.startswith(kept)}
    moved = {name for name in before if "weight" in name and not name.startswith(kept)}
    assert not unmoved & moved


def test_nothing_left_to_train_is_refused():
    with pytest.raises(ValueError, match="so that nothing is left to train"):
        Frozen(encoder="all", decoder="all", embeddings=True)


DEEPER = {"depth": 5, "heads": 2, "feed_forward": 12}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__width": 8}, r"model.width: 16 -> 8\): set the value"),
        ({"model__decoder": DEEPER}, r"depth: 2 -> 5\): .* nmtdeep grow \S+ --stack decoder --la"),
        ({"model__encoder": DEEPER | {"depth": 1}}, r"encoder.depth: 2 -> 1\): set the value"),
        ({"model__norm_epsilon": 1e-3}, "model.norm_epsilon: 1e-05 -> 0.001"),
    ],
)
def test_another_model_is_refused(tiny_run, tmp_path, changes, message):
    recipe = recipe_from(tiny_run, tiny_run.newer, **changes)
    with pytest.raises(UserError, match=message):
        started_run(tiny_run, tmp_path / "run", recipe)
    assert not (tmp_path / "run").exists()


def test_a_training_in_stages_starts_with_the_model_of_the_first(tiny_run, tmp_path):
    stages = [{"encoder": 2, "updates": 5}, {"encoder": 4}]
    deeper = {"model__encoder": DEEPER | {"depth": 4}, "training__stages": stages}
    recipe = recipe_from(tiny_run, tiny_run.newer, **deeper)
    start = started_run(tiny_run, tmp_path / "run", recipe).newest()
    assert equal(load_file(start / checkpoint.MODEL), load_file(tiny_run.newer / checkpoint.MODEL))
    assert read_config(start).model.encoder.depth == 2


def test_the_grown_model_of_the_hint_is_a_start(tiny_run, tmp_path):
    grow(tiny_run.newer, out=tmp_path / "grown", depths={"decoder": 5})
    recipe = recipe_from(tiny_run, tmp_path / "grown", model__decoder=DEEPER)
    run = started_run(tiny_run, tmp_path / "run", recipe)
    assert any("layers.4." in name for name in load_file(run.newest() / checkpoint.MODEL))


def test_random_layers_with_admin_are_refused_without_sentences_to_measure(tiny_run, tmp_path):
    recipe = recipe_from(tiny_run, None, model__encoder=DEEPER | {"residual": "admin"})
    text = tiny_run.data.pipeline
    model = build(recipe.model, **text.sizes)
    initialize(model, recipe.model, seed=1)
    with open_run(tmp_path / "run", recipe, text) as run:
        run.save(checkpoint.weights(model), None, Progress(), planned=True)
    for strategy, refused in (("random", True), ("copy_top_layer", False)):
        with pytest.raises(UserError, match="measured") if refused else nullcontext():
            grow(
                tmp_path / "run", out=tmp_path / strategy, depths={"encoder": 6}, strategy=strategy
            )


@pytest.mark.parametrize(
    ("text", "said"),
    [({}, r"vocabulary.tsv|bpe.codes"), ({"text__lowercase": True}, "lowercase: false -> true")],
)
def test_another_text_is_refused(tiny_run, make_data, tmp_path, text, said):
    pairs = [(f"word {number}", f"Wort {number}") for number in range(30)]
    recipe = recipe_from(tiny_run, tiny_run.newer, **text)
    with pytest.raises(UserError, match=rf"another text pipeline .*({said})"):
        started_run(make_data(tmp_path, recipe, pairs, pairs[:2]), tmp_path / "run", recipe)


@pytest.fixture
def source(tiny_run, tmp_path):
    """A copy of the tiny run that a test may change."""
    return shutil.copytree(tiny_run.path, tmp_path / "source", symlinks=True)


def test_other_weights_than_the_recipe_says_are_refused(tiny_run, tmp_path, source):
    recipe = started_run(tiny_run, tmp_path / "run", recipe_from(tiny_run, source)).recipe
    started_run(tiny_run, tmp_path / "again", recipe)
    checkpoint.point(source, checkpoint.LAST, tiny_run.older)
    with pytest.raises(UserError, match="SHA-256 of checkpoint_15 is not that in the recipe"):
        started_run(tiny_run, tmp_path / "third", recipe)


def test_a_run_is_resumed_and_does_not_start_again(tiny_run, tmp_path, source):
    out = tmp_path / "run"
    recipe, without = recipe_from(tiny_run, source), recipe_from(tiny_run, None)
    started = started_run(tiny_run, out, recipe)
    started.save({"weight": torch.zeros(2)}, {}, Progress(update=3), planned=True)
    assert [path.name for path in out.glob("checkpoint_[0-9]*")] == ["checkpoint_3"]
    copy = shutil.copytree(tiny_run.newer, tmp_path / "copy")  # of the same weights
    for again in (recipe, without, started.recipe, recipe_from(tiny_run, copy)):
        run = started_run(tiny_run, out, again)
        assert run.newest() == out / "checkpoint_3" and not run.changes
        assert run.recipe.training.start_from == started.recipe.training.start_from
    with pytest.raises(UserError, match=r"started from .*leave out --from"):
        started_run(tiny_run, out, recipe_from(tiny_run, source / tiny_run.older.name))
    shutil.rmtree(source)  # the start is not needed any more
    for again in (recipe, without):
        assert started_run(tiny_run, out, again).newest() == out / "checkpoint_3"


def test_a_run_is_not_replaced_by_itself(tiny_run, source):
    recipe = recipe_from(tiny_run, source)
    with pytest.raises(UserError, match="is in the run itself: choose another --out"):
        started_run(tiny_run, source, recipe, overwrite=True)
    assert json.loads((source / tiny_run.newer.name / "state.json").read_text())["update"] == 20
