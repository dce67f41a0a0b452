"""`nmtdeep reproduce`: the papers' numbers beside ours."""

import pytest
from typer.testing import CliRunner

from nmtdeep.cli.main import app
from nmtdeep.config.load import load_recipe
from nmtdeep.config.names import recipe_files
from nmtdeep.errors import UserError
from nmtdeep.tools.reproduce.targets import (
    PAPERS,
    SPEED,
    checked,
    hours,
    published,
    targets,
    trained,
)
from tests.analysis import test_zhang_2019 as table_1

SEPARATE = "model.embeddings.sharing=none"
SIDES = ("encoder", "decoder")


def printed(*words: str) -> list[str]:
    result = CliRunner().invoke(app, ["reproduce", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_a_table_has_its_rows_scores_and_commands():
    lines = printed("wang-2019/table-1")
    [row] = [line for line in lines if "pre-dlcl-30 " in line and "bleu" in line]
    assert "bleu-compound 29.3" in row and row.split()[-3:-1] == ["137M", "137M"]
    assert "nmtdeep fetch wmt16-en-de-google -o wmt16" in lines
    assert any("--dry-run --estimate" in line for line in lines)
    assert "Recipes in wang-2019/wmt16-en-de/" in lines
    assert sum("newstest2014 bleu-compound" in line for line in lines) == 9  # 1 failed


def test_epochs_of_stages_have_a_length():
    """Without one such a stage would take all updates that are left."""
    names = [name for name in recipe_files() if name.partition("/")[0] in PAPERS]
    counted = {
        name.rpartition("/")[0]
        for name in names
        if any(stage.epochs for stage in load_recipe(name).training.stages)
    }
    assert counted == published()["epochs"].keys()


@pytest.mark.parametrize(
    ("table", "failed"),
    [
        ("xu-2020/table-1", {"v1-12", "v1-18", "v1-24", "v1-plain-12"}),  # 12 layers in two forms
        ("wang-2019/table-2", {"post-16"}),
        ("wang-2019/table-7", {"post-20-batch-4096", "post-base-batch-8192"}),
        ("zhang-2019/table-3", {"matt-20", "post-20"}),
        ("wang-2019/table-1", {"post-20"}),
        ("li-2020/figure-6", set()),  # points without a number: not printed
    ],
)
def test_models_that_failed_in_the_paper(table, failed):
    rows = [line.split() for line in printed(table) if line.startswith(" ")]
    assert {row[0] for row in rows if "failed" in row} == failed


def test_a_paper_without_counts_of_parameters_has_no_columns_for_them():
    [headings, *_] = [line for line in printed("xu-2020/table-1") if "hours" in line]
    assert headings.split() == ["recipe", "row", "scores", "in", "the", "paper", "hours"]


def test_a_row_that_the_paper_contradicts_shows_both_numbers():
    [row] = [line for line in printed("zhang-2019/table-3") if line.startswith(" matt-6-aan ")]
    assert row.split()[-3:-1] == ["72.2M", "72.3M"]


# Hours by the target tokens per second that an H200 was measured to train on (docs/performance.md).
@pytest.mark.parametrize(
    ("recipe", "types", "measured"),
    [
        ("wang-2019/wmt16-en-de/pre-base", 33_950, 1.4),
        ("wang-2019/wmt16-en-de/pre-dlcl-20", 33_950, 2.7),
        ("wang-2019/wmt16-en-de/pre-dlcl-30", 33_950, 3.6),
        ("wang-2019/wmt16-en-de/pre-big", 33_950, 11.9),
        ("xu-2020/wmt14-en-de/v1-6", 32_000, 1.1),
    ],
)
def test_hours_are_those_by_measured_rates(recipe, types, measured):
    assert hours(load_recipe(recipe), (types, types), 0) == pytest.approx(measured, rel=0.3)


def test_hours_of_stages():
    """The first 42,000 of 50,000 updates have 6, 12 and 18 encoder layers, the last ones 24.

    Width 8, feed-forward 8, no biases counted: an encoder layer has 4 * 64 + 2 * 64 weights, a
    decoder layer 8 * 64 + 2 * 64, the output matrix 8 * 10.
    """
    small = [
        "width=8",
        *(f"{side}.{slot}" for side in SIDES for slot in ("heads=2", "feed_forward=8")),
    ]
    changed = [f"model.{each}" for each in small]
    recipe = load_recipe("li-2020/wmt14-en-fr/sdt-24", [*changed, "training.max_updates=50000"])
    layers = 14_000 * (6 + 12 + 18) + 8_000 * 24
    weights = layers * 6 * 64 + 50_000 * (6 * 10 * 64 + 80)
    tokens = recipe.training.batches.tokens_per_update
    expected = 6 * weights * tokens / SPEED / 3600
    assert hours(recipe, (10, 10), 0) == pytest.approx(expected, rel=1e-9)
    apart = load_recipe(
        "li-2020/wmt14-en-fr/sdt-24", [*changed, SEPARATE, "training.max_updates=50000"]
    )
    assert hours(apart, (10, 10), 0) == hours(recipe, (10, 10), 0)


def test_the_list_has_every_table_of_the_recipes():
    names = targets()
    assert {"li-2020/table-1", "xu-2020/table-3", "zhang-2019/table-1"} <= names.keys()
    assert [line.split()[0] for line in printed() if "/" in line] == [*names]
    assert trained("zhang-2019/table-1") == ([], "")


@pytest.mark.parametrize("name", ["wang-2019/table-6", "li-2020/table-2"])
def test_tables_fit_80_columns(name):
    """One that does not would have a line for each number."""
    assert all(getattr(each, "least", 0) <= 80 for each in trained(name)[0])


def test_other_names_are_refused():
    with pytest.raises(UserError, match="wang-2019/table-1"):
        checked("wang-2019/tabel-1")
    for other in ("methods/table-1", "methods/", "x"):  # no folder of a paper of these four
        with pytest.raises(UserError, match="no table or figure"):
            checked(other)
    result = CliRunner().invoke(app, ["reproduce", "zhang-2019/figure-1"])
    assert isinstance(result.exception, UserError) and "add --data" in str(result.exception)


def test_a_figure_runs_its_command():
    lines = printed("li-2020/figure-5")
    assert lines[1].startswith("$ nmtdeep analyze schedule li-2020/")
    assert "li-2020/wmt16-en-de/sdt-rpr-48" in lines
    stages = [line.split() for line in lines if "+6 " in line]
    assert [stage[1] for stage in stages] == [f"{depth}+6" for depth in range(6, 49, 6)]
    assert {stage[4] for stage in stages[1:]} == {"2.000e-03"}  # the peak, each time


def test_the_printed_cells_are_those_of_the_paper():
    target = published()["measured"]["zhang-2019/table-1"]
    labels = {"Var(r)": "variance", "beta_LN": "beta_ln", "beta_RC": "beta_rc"}
    for model, values in (("Base", table_1.BASE), ("DS-Init", table_1.DS_INIT)):
        found = target["models"][model]["values"]
        assert {labels[name]: tuple(cells) for name, cells in found.items()} == values
    assert {labels[name]: value for name, value in target["tolerance"].items()} == table_1.TOLERANCE


@pytest.mark.slow
def test_table_1_is_measured(tiny_run):
    lines = printed("zhang-2019/table-1", "--data", str(tiny_run.data.path))
    rows = [line.split() for line in lines if " ours " in line]
    assert [row[0] for row in rows] == ["Var(r)", "beta_LN", "beta_RC"] * 2
    paper = [line.split() for line in lines if " paper " in line]
    for ours, theirs in zip(rows, paper, strict=True):
        close = [abs(float(a) - float(b)) for a, b in zip(ours[2:7], theirs[2:7], strict=True)]
        assert max(close) < 0.25  # other sentences than the paper's, and few of them
