"""`nmtdeep analyze`: what it prints and writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from commands.running import Commands

COMMON = ("--data", "data", "--tokens", 60, "--device", "cpu", "--threads", 1)
FIGURES = ("variance", "beta_ln", "beta_rc", "beta", "w_over_sigma")


def initialisation(nmtdeep: Commands, *argv: object) -> str:
    done = nmtdeep("analyze", "initialisation", "tiny.yaml", *argv, *COMMON)
    assert done.code == 0, done.err
    return done.out


def figures(nmtdeep: Commands, *argv: object) -> Any:
    return json.loads(initialisation(nmtdeep, "--json", *argv))


def test_initialisation_prints_a_row_for_each_kind_of_sublayer(
    nmtdeep: Commands, data: Path
) -> None:
    out = initialisation(nmtdeep, "model.encoder.residual=post_norm")
    rows = [line.split() for line in out.splitlines()]
    found = {(row[0], row[1]): row[2:] for row in rows if row and row[0] in ("encoder", "decoder")}
    assert list(found) == [
        ("encoder", "self_attention"),
        ("encoder", "feed_forward"),
        ("decoder", "self_attention"),
        ("decoder", "cross_attention"),
        ("decoder", "feed_forward"),
    ]
    assert "-" not in found["encoder", "feed_forward"]
    assert found["decoder", "feed_forward"][1] == "-"  # pre-norm has no beta_LN
    assert (
        "tiny.yaml, glorot gain=1.0 embeddings=normal cross_attention=joint, before the first"
        in out
    )


def test_layers_csv_and_json_say_the_same(nmtdeep: Commands, data: Path) -> None:
    out = initialisation(nmtdeep, "--layers", "--csv", "start.csv")
    everything = figures(nmtdeep)
    assert len(everything["layers"]) == 2 * 2 + 3
    with (nmtdeep.folder / "start.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row, layer in zip(rows, everything["layers"], strict=True):
        assert f"{layer['variance']:.3f}" in out
        assert {name: value for name, value in row.items() if name not in FIGURES} == {
            "side": layer["side"],
            "layer": str(layer["layer"]),
            "sublayer": layer["sublayer"],
        }
        for name in FIGURES:
            written = float(row[name]) if row[name] else None
            assert written == (layer[name] and pytest.approx(layer[name], rel=1e-4))
    mean = sum(one["variance"] for one in everything["layers"][0:4:2]) / 2
    assert everything["averages"][0]["variance"] == pytest.approx(mean)


def test_seed_and_updates_change_the_figures(nmtdeep: Commands, data: Path) -> None:
    start = figures(nmtdeep)
    assert figures(nmtdeep) == start
    other = figures(nmtdeep, "--seed", 7)
    trained = figures(nmtdeep, "--after", 2)
    assert (other["conditions"]["seed"], trained["conditions"]["updates"]) == (7, 2)
    assert other["layers"] != start["layers"] != trained["layers"]


def test_admin_measures_on_the_same_sentences(nmtdeep: Commands, data: Path) -> None:
    found = figures(
        nmtdeep,
        "model.initialiser=admin",
        "model.encoder.residual=admin",
        "model.decoder.residual=admin",
    )
    assert all(layer["beta_ln"] for layer in found["layers"])


def test_gradients_of_two_recipes(nmtdeep: Commands, data: Path) -> None:
    (nmtdeep.folder / "scaled.yaml").write_text(
        "extends: tiny.yaml\nmodel: {initialiser: {type: depth_scaled, exponent: 0.25}}\n"
    )
    done = nmtdeep(
        "analyze", "gradients", "tiny.yaml", "scaled.yaml", "model.encoder.residual=post_norm",
        "--depths", "1,3", "--csv", "g.csv", "--plot", "g.svg", *COMMON,
    )  # fmt: skip
    assert done.code == 0, done.err
    with (nmtdeep.folder / "g.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * (1 + 3)
    assert {row["initialiser"].split()[0] for row in rows} == {"glorot", "depth_scaled"}
    assert all(float(row["gradient_norm"]) > 0 for row in rows)
    svg = (nmtdeep.folder / "g.svg").read_text(encoding="utf-8")
    assert "depth_scaled" in svg
    shown = next(line for line in done.out.splitlines() if "1 layers, encoder" in line)
    assert float(shown.split()[-1]) == pytest.approx(float(rows[0]["gradient_norm"]), rel=1e-2)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--depths", "6,x"), "--depths 6,x: give numbers with commas between them"),
        (("--plot", "g.doc"), "--plot g.doc: give a file that ends in .svg, .png or .pdf"),
    ],
)
def test_what_gradients_cannot_read(
    nmtdeep: Commands, data: Path, argv: tuple[str, str], message: str
) -> None:
    done = nmtdeep("analyze", "gradients", "tiny.yaml", *argv, *COMMON)
    assert done.code == 2
    assert message in done.err
