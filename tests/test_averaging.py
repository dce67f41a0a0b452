"""The mean of checkpoints, computed again by numpy from the raw files."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from nmtdeep import checkpoint, files
from nmtdeep.averaging import average, choose
from nmtdeep.config.training import Training
from nmtdeep.errors import UserError
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.training.run_directory import identity


@pytest.fixture
def run(tiny_run, tmp_path):
    """A copy of the run with a third checkpoint, whose weights are a thousand times larger."""
    run = Path(shutil.copytree(tiny_run.path, tmp_path / "run", symlinks=True))
    third = Path(shutil.copytree(run / "checkpoint_20", run / "checkpoint_70"))
    tensors = load_file(third / "model.safetensors")
    large = {name: (1000 * value + 1).astype(np.float32) for name, value in tensors.items()}
    save_file(large, third / "model.safetensors")
    files.write_sums(third)
    edit(third, update=70, score=-17.0)
    return run


def edit(directory: Path, **changes: Any) -> None:
    state = json.loads((directory / "state.json").read_text(encoding="utf-8"))
    text = json.dumps({**state, **changes})
    (directory / "state.json").write_text(text, encoding="utf-8")
    files.write_sums(directory)


def test_the_mean_is_numpys_in_float64(run, tmp_path):
    inputs = [run / f"checkpoint_{update}" for update in (15, 20, 70)]
    out = average(inputs, tmp_path / "mean")
    raw = [load_file(path / "model.safetensors") for path in inputs]
    means = load_file(out / "model.safetensors")
    assert means.keys() == raw[0].keys()
    for name, value in means.items():
        exact = np.mean([weights[name].astype(np.float64) for weights in raw], axis=0)
        assert value.dtype == np.float32
        # One rounding to float32 and none before it, but for the order of three sums in float64.
        np.testing.assert_allclose(value, exact.astype(np.float32), rtol=1.2e-7, atol=0)
    assert any((means[name] != raw[0][name]).any() for name in means)
    again = load_file(average(inputs[::-1], tmp_path / "again") / "model.safetensors")
    assert all((again[name] == value).all() for name, value in means.items())


def test_the_average_says_what_it_was_made_of(run, tmp_path):
    inputs = [run / "checkpoint_15", run / "checkpoint_last"]
    out = average(inputs, tmp_path / "mean")
    loaded = checkpoint.load_model(out)
    assert loaded.state["kind"] == "average"
    assert loaded.state["inputs"] == [
        {
            "checkpoint": path.name,
            "sha256": hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest(),
        }
        for path in inputs
    ]
    assert not (out / "optimizer.safetensors").exists()
    assert loaded.recipe == checkpoint.load_model(inputs[0]).recipe


def options(directory: Path, **values: Any) -> None:
    """Change options for translating, as a training that is resumed with others does."""
    text = (directory / "config.yaml").read_text(encoding="utf-8")
    for name, value in values.items():
        text, count = re.subn(rf"(?m)^(  {name}:).*", rf"\1 {value}", text)
        assert count == 1
    (directory / "config.yaml").write_text(text, encoding="utf-8")
    files.write_sums(directory)


@pytest.mark.parametrize("order", [(15, 20, 70), (70, 20, 15)], ids=str)
def test_an_average_translates_as_its_newest_input(run, tmp_path, order):
    for update, beam in ((15, 2), (20, 3), (70, 7)):
        options(run / f"checkpoint_{update}", beam=beam, lenpen=beam / 10)
    out = average([run / f"checkpoint_{update}" for update in order], tmp_path / "mean")
    decoding = checkpoint.load_model(out).recipe.decoding
    assert (decoding.beam, decoding.lenpen) == (7, 0.7)
    # An average is as old as its newest input.
    options(run / "checkpoint_15", beam=9)
    edit(run / "checkpoint_15", update=60)
    again = average([run / "checkpoint_15", out], tmp_path / "again")
    assert checkpoint.load_model(again).recipe.decoding.beam == 7


def test_models_that_were_not_trained_here_translate_as_the_first(run, tmp_path):
    inputs = [run / "checkpoint_15", run / "checkpoint_20"]
    for beam, path in enumerate(inputs, 5):
        options(path, beam=beam)
        (path / "state.json").write_text(
            json.dumps(
                {"format": "nmtdeep-1", "text": TextPipeline.load(path / "text").fingerprint()}
            )
        )
        files.write_sums(path)
    assert checkpoint.load_model(average(inputs, tmp_path / "mean")).recipe.decoding.beam == 5


@pytest.mark.parametrize("other", ["seed", "training", "corpus"])
def test_another_training_is_refused(run, tmp_path, other):
    inputs = [run / "checkpoint_15", run / "checkpoint_20"]
    if other == "seed":
        options(inputs[1], seed=77)
    else:
        edit(inputs[0], **{other: "of one run"})
        edit(inputs[1], **{other: "of another run"})
    named = "training.seed: 1 -> 77" if other == "seed" else f"another {other}"
    with pytest.raises(UserError, match=f"not from the same run as {inputs[0]} .*{named}") as error:
        average(inputs, tmp_path / "mean")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "mean").exists()


def test_what_tells_trainings_apart(tiny_run):
    def told(**values: Any) -> str:
        training = Training.model_validate(base | values)
        return identity(
            tiny_run.recipe.model_copy(update={"training": training}), tiny_run.pipeline
        )

    base: dict[str, Any] = tiny_run.recipe.training.model_dump()
    batches = base["batches"]
    assert told() == told(max_updates=7, log_every=3, batches=batches | {"max_tokens": 77})
    apart = [told(), told(seed=5), told(label_smoothing=0.3), told(clip_norm=1.0)]
    apart += [told(batches=batches | {"tokens_per_update": 99}), told(precision="fp32")]
    assert len(set(apart)) == len(apart)


def test_newest_and_best(run):
    first, second, third = (run / f"checkpoint_{update}" for update in (15, 20, 70))
    assert choose(run, 2) == [second, third]
    with pytest.raises(UserError, match="has 3 checkpoints, not 4"):
        choose(run, 4)
    assert choose(run, 2, best=True) == [first, third]  # scores are -15, -20 and -17
    edit(first, score=None)
    assert choose(run, 2, best=True) == [third, second]
    with pytest.raises(UserError, match="has 2 validated checkpoints, not 3"):
        choose(run, 3, best=True)


def test_the_same_checkpoint_twice_is_refused(run, tmp_path):
    checkpoint = run / "checkpoint_20"
    shutil.copytree(checkpoint, run / "checkpoint_80")
    for again in (checkpoint, run / "checkpoint_last", run / "checkpoint_80"):
        with pytest.raises(UserError, match=f"{again}: has the same weights as {checkpoint}"):
            average([checkpoint, again], tmp_path / "mean")
