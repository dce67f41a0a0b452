"""The report of `preprocess`, readable on 80 columns."""

import io

from rich.console import Console

from nmtdeep.preprocessing.summary import PreprocessingReport, Reason, SplitReport

TESTS = [f"test_{name}_flickr" for name in ("2016", "2017", "2018", "mscoco")]


def report(**seconds: float) -> PreprocessingReport:
    """Five splits, of which train is as large as WMT's English-German."""
    splits = {
        "train": SplitReport(
            4_500_966, 4_499_000, {}, 12_345, (116_000_000, 110_000_000),
            tokens=(140_000_000, 140_000_000), unknown=(14_000, 0),
        ),
        **{
            name: SplitReport(1000, 1000, {}, 0, (12_968, 12_103), tokens=(1, 1))
            for name in ("valid", *TESTS)
        },
    }  # fmt: skip
    return PreprocessingReport(
        ("en", "de"), splits, {"joint": 32_000}, {"shared": 32_768}, seconds, "5ea6911688e8030e"
    )


def shown(found: PreprocessingReport) -> list[str]:
    console = Console(width=80, file=io.StringIO())
    found.show(console)
    return console.file.getvalue().splitlines()


def test_a_row_per_split_fits_80_columns():
    lines = [line.split() for line in shown(report(all=1.0))]
    assert ["train", "4,500,966", "4,499,000", "12,345", "116,000,000", "110,000,000"] in lines
    assert ["train", "140,000,000", "0.010", "%", "140,000,000", "0.000", "%"] in lines
    for name in TESTS:
        assert [name, "1,000", "1,000", "0", "12,968", "12,103"] in lines


def test_there_is_a_table_of_dropped_pairs_only_where_pairs_were_dropped():
    screen = report(all=1.0)
    assert " No pairs were dropped." in shown(screen)
    screen.splits["train"].reasons["target is empty"] = Reason(2, [5, 7])
    lines = shown(screen)
    assert " No pairs were dropped." not in lines
    row = ["train", "target", "is", "empty", "dropped", "2", "(line", "5,", "7)"]
    assert row in [line.split() for line in lines]
