"""Fine-tuning by the real commands: resumed anywhere, frozen, deeper, with two processes."""

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from commands.running import Finished, Interrupt, value
from commands.runs import contents, files

LOSS, STEP = "nmtdeep.training.loss:smoothed_cross_entropy", "nmtdeep.training.step"
MORE = (
    "--max-updates", 6, "--label-smoothing", 0, "model.dropout.residual=0.3", "--freeze", "encoder"
)  # fmt: skip
HOW = ("--device", "cpu", "--threads", 1, "--final-scores")
KILLS = {
    "in the weights that it starts from": Interrupt("nmtdeep.checkpoint:save_tensors", 1, "half"),
    "before the first update": Interrupt(LOSS, 1),
    "in a later update": Interrupt(f"{STEP}:Step.apply", 5),
}


def tune(nmtdeep, out: Path, *options: object, data: object = "tuning", **how) -> Finished:
    """`nmtdeep train` of the finished run `whole` on another corpus, with its own recipe."""
    return nmtdeep("train", "--data", data, "--out", out, *MORE, *options, *HOW, **how)


@pytest.fixture(scope="session")
def tuning(nmtdeep, data, whole):
    """A second corpus with the text pipeline of the run, which this makes."""
    done = nmtdeep(
        "preprocess", "dropout.yaml", "--text", "whole", "--train", "valid", "--valid", "test",
        "--test", "test", "--out", "tuning", "--workers", 1,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "text.bpe.dropout: 0.1 -> 0.0\n" in done.out
    assert files(nmtdeep.folder / "tuning" / "text") == files(whole / "text")
    return nmtdeep.folder / "tuning"


@pytest.fixture(scope="session")
def tuned(nmtdeep, tuning):
    """A fine-tuning that nothing interrupted; not to be changed."""
    done = tune(nmtdeep, nmtdeep.folder / "tuned", "--from", "whole")
    assert done.code == 0, done.err
    return nmtdeep.folder / "tuned", done


def test_its_screens_say_where_the_weights_come_from(nmtdeep, whole, tuned):
    best = (whole / "checkpoint_best").resolve()
    sha256 = hashlib.sha256((best / "model.safetensors").read_bytes()).hexdigest()
    run, done = tuned
    assert value(done.err, "weights") == f"from whole ({best.name}), SHA-256 {sha256[:16]}"
    for path in (run, run / "checkpoint_6"):
        screen = nmtdeep("inspect", path).out
        assert value(screen, "started from") == f"whole ({best.name}), SHA-256 {sha256}"
    before, after = (load_file(path / "model.safetensors") for path in (best, run / "checkpoint_6"))
    kept = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if name.startswith("encoder.")} <= kept
    assert not any(name.startswith("decoder.") and "weight" in name for name in kept)
    trained = sum(each.numel() for name, each in before.items() if not name.startswith("encoder."))
    total = sum(each.numel() for each in before.values())
    frozen = f"encoder; {trained:,} of {total:,} parameters are trained"
    assert value(done.err, "frozen") == frozen


def test_killed_and_resumed_equals_the_uninterrupted_run(nmtdeep, tuned, tmp_path):
    run = tmp_path / "run"
    # The same command, or without --from: the run has a recipe of its own then.
    for number, (place, interrupt) in enumerate(KILLS.items()):
        again = ("--from", "whole") if number != 1 else ()
        assert tune(nmtdeep, run, *again, interrupt=interrupt).code == -9, place
    resumed = tune(nmtdeep, run)
    assert resumed.code == 0, resumed.err
    assert contents(run) == contents(tuned[0])
