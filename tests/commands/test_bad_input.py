"""Bad input by the real command: exit code 2, one clear line that ends with the hint, no loss."""

import shutil

import pytest
import torch

from commands.running import Finished
from commands.runs import contents, train, words
from nmtdeep.files import write_sums


def refused(done: Finished, *said: str) -> None:
    """Exit code 2 and one line on stderr, nothing on stdout."""
    assert done.code == 2, (done.code, done.err)
    assert done.out == ""
    lines = done.err.splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("nmtdeep: error: ")
    for part in said:
        assert part in lines[0]


def test_texts_that_cannot_be_preprocessed(nmtdeep, tmp_path):
    command = (
        "preprocess", "tiny.yaml", "--train", tmp_path / "bad", "--valid", "valid",
        "--out", tmp_path / "data", "--workers", 1,
    )  # fmt: skip
    (tmp_path / "bad.en").write_bytes(b"one\ntwo\n")
    refused(nmtdeep(*command), "bad.de: ")
    (tmp_path / "bad.de").write_bytes(b"eins\n")
    refused(nmtdeep(*command), "bad.en: ")
    assert not (tmp_path / "data").exists()


def test_data_that_is_missing_or_incomplete(nmtdeep, data, tmp_path):
    refused(train(nmtdeep, tmp_path / "r", data="nowhere"), "nowhere: ", "nmtdeep preprocess")
    half = shutil.copytree(data, tmp_path / "half")
    (half / "data.json").unlink()
    refused(train(nmtdeep, tmp_path / "r", data=half), "half: ")
    assert not (tmp_path / "r").exists()


def test_a_damaged_checkpoint_is_named_and_training_resumes_from_the_one_before(
    nmtdeep, whole, tmp_path
):
    run = shutil.copytree(whole, tmp_path / "run", symlinks=True)
    broken = run / "checkpoint_11"
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    before = (run / "train.jsonl").read_bytes()
    refused(train(nmtdeep, run, "--max-updates", 12), f"{weights.name}: ")
    assert (run / "train.jsonl").read_bytes() == before
    refused(nmtdeep("translate", "-m", broken, stdin=b"x\n"), f"{weights.name}: ")
    shutil.rmtree(broken)
    assert train(nmtdeep, run).code == 0
    assert contents(run) == contents(whole)


def test_models_that_do_not_go_together(nmtdeep, whole, whole_dropout, tmp_path):
    mixed = shutil.copytree(whole / "checkpoint_11", tmp_path / "mixed")
    shutil.copy(whole_dropout / "checkpoint_best" / "model.safetensors", mixed)
    write_sums(mixed)
    refused(nmtdeep("translate", "-m", mixed, stdin=b"x\n"), f"{mixed}/model.safetensors: ")
    refused(nmtdeep("translate", "-m", whole, "-m", whole_dropout, stdin=b"x\n"), "text pipeline")
    inputs = [run / "checkpoint_best" for run in (whole, whole_dropout)]
    average = nmtdeep("average-checkpoints", *inputs, "-o", tmp_path / "average")
    refused(average, "not from the same run")
    refused(train(nmtdeep, whole, data="data-dropout"), "another vocabulary")


@pytest.mark.slow
def test_an_average_replaces_nothing_but_averages(nmtdeep, averaged, tmp_path):
    run = shutil.copytree(averaged[0], tmp_path / "run", symlinks=True)
    before = contents(run)
    inputs = [run / "checkpoint_10", run / "checkpoint_11"]
    for out in (run, inputs[0]):
        done = nmtdeep("average-checkpoints", *inputs, "-o", out, "--overwrite")
        refused(done, f"{out}: ", "--output")
    refused(nmtdeep("average-checkpoints", run, "--last", 3), "--overwrite")
    assert contents(run) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "tpu"), "unknown device tpu"),
        (("--precision", "fp16", "--device", "cpu"), "fp16 needs a GPU"),
        pytest.param(
            ("--device", "cuda"),
            "no CUDA device here",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_devices_and_precisions_that_do_not_exist(nmtdeep, data, whole, tmp_path, options, message):
    refused(nmtdeep("translate", "-m", whole, *options, stdin=b"x\n"), message)
    done = nmtdeep("train", "tiny.yaml", "--data", "data", "--out", tmp_path / "run", *options)
    refused(done, message)
    assert not (tmp_path / "run").exists()


def test_paths_that_cannot_be_written_to(nmtdeep, data, whole):
    text = ("--train", "train", "--valid", "valid")
    refused(nmtdeep("preprocess", "tiny.yaml", *text, "--out", "/proc/run"))
    refused(train(nmtdeep, "/sys/run"), "same command again")
    refused(train(nmtdeep, "data"), "data: ")
    inside = f"{whole}/checkpoint_last"
    refused(train(nmtdeep, inside), f"--from {inside}")
    refused(nmtdeep("translate", "-m", whole, "-o", "/proc/run/x", stdin=b"x\n"), "/proc/run")


def test_bad_input_leaves_the_last_translation_alone(nmtdeep, whole, tmp_path):
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_bytes(b"Password\n" * 9 + b"zw\xf6lf\n")
    out.write_text("yesterday's\n")
    refused(nmtdeep("translate", "-m", whole, "-i", text, "-o", out), f"{text}:10: ")
    assert out.read_text() == "yesterday's\n"
    text.write_text("Password\n")
    refused(nmtdeep("translate", "-m", whole, "-i", text, "-o", text), f"{text}: ")
    assert text.read_text() == "Password\n"


def test_training_that_diverges(nmtdeep, data, tmp_path):
    run = tmp_path / "run"
    assert nmtdeep(*words(run, "--max-updates", 4)[:-1]).code == 0
    done = train(nmtdeep, run, "training.schedule.lr=1e30")
    assert done.code == 2
    *_, last = done.err.splitlines()
    # Update 5 ruins the weights; 6, which is validated and has a checkpoint planned, 7 and 8 show.
    assert last.startswith("nmtdeep: error: training diverged at update 8: loss nan per token")
    assert "checkpoint_4 is intact, and training resumes from it" in last
    assert "Traceback" not in done.err
    assert not (run / "checkpoint_6").exists() and (run / "checkpoint_4").exists()
    resumed = nmtdeep(*words(run, "training.schedule.lr=1e-2", "--max-updates", 5)[:-1])
    assert resumed.code == 0, resumed.err


def test_verbose_prints_the_traceback(nmtdeep):
    done = nmtdeep("train", "no-such-recipe", "-v", "--data", "data", "--out", "run")
    assert done.code == 2 and done.err.splitlines()[-1].startswith("nmtdeep: error: ")
    assert "Traceback" in done.err
