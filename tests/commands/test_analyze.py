"""`nmtdeep analyze`: printed and written results."""

import csv
import json

import pytest

from commands.running import Commands

COMMON = ("--data", "data", "--tokens", 60, "--device", "cpu", "--threads", 1)


def read_csv(nmtdeep: Commands, name: str) -> list[dict[str, str]]:
    with (nmtdeep.folder / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_gradients_of_two_recipes(nmtdeep, data):
    (nmtdeep.folder / "scaled.yaml").write_text(
        "extends: tiny.yaml\nmodel: {initializer: {type: depth_scaled, exponent: 0.25}}\n"
    )
    done = nmtdeep(
        "analyze", "gradients", "tiny.yaml", "scaled.yaml", "model.encoder.residual=post_norm",
        "--depths", "1,3", "--csv", "g.csv", *COMMON,
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = read_csv(nmtdeep, "g.csv")
    assert len(rows) == 2 * 2 * (1 + 3)
    assert {row["model"] for row in rows} == {"tiny.yaml", "scaled.yaml"}
    assert all(float(row["gradient_norm"]) > 0 for row in rows)
    shown = [line.split() for line in done.out.splitlines() if "encoder " in line]
    assert [line[1:3] for line in shown] == [["1", "0"], ["3", "0"]] * 2
    first, middle, top, ratio = map(float, shown[1][3:])
    norms = [float(row["gradient_norm"]) for row in rows[2:5]]
    assert [first, middle, top] == pytest.approx(norms, rel=1e-2)
    assert ratio == pytest.approx(norms[0] / norms[2], rel=1e-2)


@pytest.mark.slow
def test_a_trained_model_is_measured_as_it_is(nmtdeep, data, averaged):
    run = averaged[0]
    done = nmtdeep("analyze", "initialization", run, "--plot", "i.svg", *COMMON)
    assert done.code == 0, done.err
    assert "kind average of checkpoints" in " ".join(done.out.split())
    drawn = (nmtdeep.folder / "i.svg").read_text(encoding="utf-8")
    assert drawn.count(">beta_RC, ") == 2  # of encoder and decoder
    assert nmtdeep("analyze", "gradients", run, "--csv", "t.csv", *COMMON).code == 0
    rows = read_csv(nmtdeep, "t.csv")
    kept = {path.name.rpartition("_")[2] for path in run.glob("checkpoint_*")}
    assert {row["update"] for row in rows} == {"0", *(name for name in kept if name.isdecimal())}


def test_similarity_and_attention_of_a_run(nmtdeep, data, whole):
    how = ("--data", "data", "--device", "cpu", "--threads", 1)
    done = nmtdeep("analyze", "similarity", whole, *how, "--csv", "s.csv", "--json")
    assert done.code == 0, done.err
    everything = json.loads(done.out)
    assert everything["conditions"]["sentences"] == 20
    inter = [float(row["inter"]) for row in read_csv(nmtdeep, "s.csv")]
    assert inter == pytest.approx([row["inter"] for row in everything["rows"]])
    text = ("--source", "Turn $on the [b]light[/b]", "--of", "encoder", "--head", "all")
    done = nmtdeep("analyze", "attention", whole, *text, "--csv", "a.csv", "--plot", "a.svg")
    assert done.code == 0, done.err
    rows = read_csv(nmtdeep, "a.csv")
    assert {row["head"] for row in rows} == {"1", "2"}
    first = [float(row["weight"]) for row in rows if (row["head"], row["query"]) == ("1", "1")]
    assert sum(first) == pytest.approx(1)
    assert rows[-1]["key_token"] == rows[-1]["query_token"] == "</s>"


def test_lengths_of_a_file_and_curves_of_a_run(nmtdeep, whole):
    text = ("--source", "valid.en", "--reference", "valid.de")
    done = nmtdeep("analyze", "lengths", "valid.en", "valid.de", *text, "--csv", "l.csv")
    assert done.code == 0, done.err
    perfect = [row for row in read_csv(nmtdeep, "l.csv") if row["system"] == "valid.de"]
    assert sum(int(row["sentences"]) for row in perfect) == 20
    assert [float(row["score"]) for row in perfect] == pytest.approx([100] * len(perfect))
    assert nmtdeep("plot", whole, "--csv", "c.csv", "--over", "hours").code == 0
    records = [json.loads(line) for line in (whole / "train.jsonl").open(encoding="utf-8")]
    expected = [record["valid_nll"] for record in records if record["kind"] == "validation"]
    points = [row for row in read_csv(nmtdeep, "c.csv") if row["figure"] == "valid_nll"]
    assert [float(row["value"]) for row in points] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("combination whole", "no layer combination"),
        ("attention whole --source a --head 3", "from 1 to 2"),
        ("gradients whole model.width=8 --data data", "model.width=8"),
        ("schedule model.width=8", "no recipe"),
        ("lengths valid.de --source valid.en --reference test.de", "test.de"),
    ],
)
def test_a_wrong_argument_is_an_error(nmtdeep, data, whole, command, what):
    done = nmtdeep("analyze", *command.split())
    assert (done.code, done.err.count("\n")) == (2, 1), done.out
    assert what in done.err
