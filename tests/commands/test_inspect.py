"""`nmtdeep inspect` as a user meets it."""

import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from commands.running import value
from commands.runs import records


def test_inspect_describes_a_run(nmtdeep, averaged):
    whole = averaged[0]
    done = nmtdeep("inspect", whole)
    assert done.code == 0, done.err
    tensors = load_file(whole / "checkpoint_11" / "model.safetensors").values()
    assert f" {sum(tensor.numel() for tensor in tensors):,} parameters" in value(done.out, "model")
    assert value(done.out, "encoder").startswith("2 layers, 2 heads, feed-forward 32, residual pre")
    assert value(done.out, "trained").startswith("11 of 11 updates")
    best = [record for record in records(whole) if record.get("best")][-1]
    expected = f"update {best['update']} by validation: loss {best['valid_loss']:.4f}"
    assert expected in value(done.out, "best")
    scores = json.loads((whole / "scores.json").read_text())["scores"]
    for split, metrics in scores.items():
        row = re.search(rf"^ +{split} +(.*)$", done.out, re.M)
        assert row and row[1].split() == [f"{score['value']:.2f}" for score in metrics]
        for score in metrics:
            assert done.out.count(score["signature"]) == 1
    assert re.search(r"checkpoint_average .*mean of 3 \(translates\)", done.out)
    assert re.search(r"checkpoint_11 .*\(.*last.*\)", done.out)
    assert value(done.out, "integrity").startswith("ok")


def test_inspect_describes_a_checkpoint_and_a_data_directory(nmtdeep, averaged, data):
    checkpoint = nmtdeep("inspect", averaged[0] / "checkpoint_average")
    names = "checkpoint_8, checkpoint_10, checkpoint_11"
    assert value(checkpoint.out, "mean of") == names
    corpus = nmtdeep("inspect", data)
    rows = [line.split()[:2] for line in corpus.out.splitlines()]
    counts = {"train": "200", "valid": "20", "test": "12"}
    assert [row for row in rows if row and row[0] in counts][:3] == [*map(list, counts.items())]


def test_text_of_a_data_directory_that_looks_wrong_is_named(nmtdeep, data, folder):
    assert "warnings" not in nmtdeep("inspect", data).out
    for side in ("en", "de"):
        (folder / f"damaged.{side}").write_text("one\ngr\ufffdn\n", "utf-8")
    words = ("--train", "train", "--valid", "damaged", "--out", "data-damaged")
    assert nmtdeep("preprocess", "tiny.yaml", *words).code == 0
    shown = " ".join(nmtdeep("inspect", "data-damaged").out.split())
    for side in ("en", "de"):
        assert f"data-damaged/valid.{side}: 1 of 2 lines" in shown


@pytest.mark.parametrize(
    "name",
    ["run/checkpoint_11/model.safetensors", "run/checkpoint_11/SHA256SUMS", "data/text/bpe.codes"],
)
def test_a_flipped_bit_is_named(nmtdeep, averaged, data, tmp_path, name):
    shutil.copytree(averaged[0], tmp_path / "run", symlinks=True)
    shutil.copytree(data, tmp_path / "data")
    flip(tmp_path / name)
    folder, _, below = name.partition("/")
    done = nmtdeep("inspect", tmp_path / folder)
    assert (done.code, done.err) == (1, ""), done.out
    assert below in value(done.out, "DAMAGED")
    assert done.out.count(f"{below}: ") <= 1


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
