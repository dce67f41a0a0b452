"""Tables, CSV and JSON of any rows: written out by hand."""

from typing import Annotated, NamedTuple

from nmtdeep import __version__
from nmtdeep.analysis.measurement import Column, Measurement
from nmtdeep.tables import as_lines


class Row(NamedTuple):
    model: str
    updates: int
    loss: Annotated[float | None, Column("mean loss", "nats")]


ROWS = [Row("a", 12_000, 0.25), Row("b", 7, None)]
ONE = Measurement("losses", ROWS, {"a": {"seed": 1}, "data": "x"})


def test_a_table_has_all_rows_or_the_summary():
    assert [line.split() for line in as_lines(*ONE.tables)][::2] == [
        ["model", "updates", "mean", "loss"],
        ["a", "12,000", "0.250"],
    ]
    assert as_lines(*ONE.tables)[-1].split() == ["b", "7", "-"]
    summary = [{"model": "a", "best": 12.0}]
    short = Measurement("losses", ROWS, {}, summary, form=".1f", note="the best")
    lines = as_lines(*short.tables)
    assert [lines[0].split(), lines[2].split(), lines[3]] == [
        ["model", "best"], ["a", "12.0"], "the best",
    ]  # fmt: skip
    assert Measurement("losses", ROWS, {}, []).tables == []


def test_csv_and_json_have_every_row_and_the_units(tmp_path):
    ONE.write_csv(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == "model,updates,loss\na,12000,0.25\nb,7,\n"
    everything = ONE.as_json()
    assert everything["rows"][0] == {"model": "a", "updates": 12_000, "loss": 0.25}
    assert everything["columns"]["loss"] == {"label": "mean loss", "unit": "nats"}
    assert everything["conditions"]["nmtdeep"] == __version__
