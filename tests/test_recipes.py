"""The shipped recipes, the commands that show them, and the documents made from them."""

import importlib
import re
from pathlib import Path

import pytest
from shipped import loaded
from typer.testing import CliRunner

from nmtdeep.cli.main import app
from nmtdeep.config import slots
from nmtdeep.config.load import load_recipe, resolve
from nmtdeep.config.model import SIDES
from nmtdeep.config.names import list_recipes
from nmtdeep.config.warnings import warnings
from nmtdeep.errors import ConfigError, UserError

ROOT = Path(__file__).parent.parent
DESCRIPTIONS = list_recipes()
NAMES = list(DESCRIPTIONS)
PAPERS = ("wang-2019", "li-2020", "zhang-2019", "xu-2020")
PUBLISHED = [name for name in NAMES if name.startswith(PAPERS)]
# The tables that print how many parameters a model has, where its training did not fail.
COUNTED = {
    "wang-2019": ("Table 1", "Table 3", "Table 4"),
    "li-2020": ("Table 1",),
    "zhang-2019": ("Table 3", "Table 5", "Table 6"),
    "xu-2020": (),
}


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["recipes", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


# The recipes


def test_every_recipe_loads_and_describes_itself():
    """And is warned of nothing; published rows have the original rules of text."""
    for name in NAMES:
        recipe = loaded(name)
        assert recipe.description == DESCRIPTIONS[name]
        assert warnings(recipe) == [], name
        if recipe.reference.scores or name.startswith((*PAPERS, "methods/r-drop")):
            assert recipe.text.tokenizer.rules == "original", name
        elif name in ("deep-small", "demo", "multi30k-en-de-deep"):
            assert recipe.text.tokenizer.rules == "protected", name
        assert 10 < len(recipe.description) <= 90, name
        end, every = recipe.training.max_updates, recipe.training.checkpoints.every
        assert end == "auto" or isinstance(every, str) or every <= end, name


def test_a_published_row_says_where_it_comes_from():
    for name in PUBLISHED:
        reference = loaded(name).reference
        assert reference.paper.startswith(name[0].upper()), name
        assert reference.table.startswith(("Table ", "Figure ", "Section ")), name
        assert reference.row, name
        why = reference.scores or "failed" in reference.note or "not known to us" in reference.note
        assert why, name
        if reference.scores and reference.table in COUNTED[name.partition("/")[0]]:
            assert reference.parameters, name


def test_rows_of_fairseqs_users_start_at_position_2():
    """Wang et al. and Li et al. trained with fairseq, whose padding has id 1."""
    first = {name: loaded(name).model.positions.first for name in PUBLISHED}
    assert {first[name] for name in PUBLISHED if name.startswith(PAPERS[:2])} == {2}


def test_a_folders_readme_tells_each_row():
    for name in PUBLISHED:
        folder, _, row = name.partition("/")
        reference = loaded(name).reference
        text = (ROOT / "recipes" / folder / "README.md").read_text(encoding="utf-8")
        (line,) = (line for line in text.splitlines() if line.startswith(f"| `{row}` |"))
        for score, value in reference.scores.items():
            assert f"{score} {value:g}" in line
        assert reference.parameters in line


@pytest.mark.parametrize(
    ("name", "tokens", "updates", "depths"),
    [
        ("wang-2019/wmt16-en-de/pre-20", 8 * 8192, 50_000, (20, 6)),
        ("wang-2019/wmt16-en-de/pre-dlcl-big-12", 8 * 4096, 300_000, (12, 6)),
        ("wang-2019/wmt16-en-de/post-20-batch-4096", 8 * 4096, 100_000, (20, 6)),
        ("wang-2019/wmt16-en-de/pre-base-batch-8192", 8 * 8192, 50_000, (6, 6)),
        ("wang-2019/nist-zh-en/pre-dlcl-25", 8 * 8192, 25_000, (25, 6)),
        ("wang-2019/wmt18-zh-en/pre-dlcl-30", 8 * 8192, 100_000, (30, 6)),
        ("li-2020/wmt16-en-de/deep-48", 8 * 8192, 50_000, (48, 6)),
        ("li-2020/wmt14-en-fr/sdt-rpr-48", 8 * 8192, 150_000, (48, 6)),
        ("zhang-2019/wmt14-en-de/post-base-50k", 50_000, 300_000, (6, 6)),
        ("zhang-2019/wmt14-en-de/ds-20-matt-big", 54_000, 300_000, (20, 20)),
        ("zhang-2019/wmt14-en-fr/ds-12-matt", 40_000, 500_000, (12, 12)),
        ("zhang-2019/iwslt14-de-en/post-base", 25_000, 300_000, (6, 6)),
        ("xu-2020/wmt14-en-de/v1-lipschitz-6-24", 25_000, 100_000, (6, 24)),
        ("xu-2020/wmt15-cs-en/v1-lipschitz-12", 25_000, 100_000, (12, 12)),
        ("multi30k-en-de", 2 * 4096, 8000, (4, 4)),
    ],
)
def test_the_papers_batches_updates_and_depths(name, tokens, updates, depths):
    recipe = loaded(name)
    assert recipe.training.batches.tokens_per_update == tokens
    assert recipe.training.max_updates == updates
    assert (recipe.model.encoder.depth, recipe.model.decoder.depth) == depths


def test_a_name_keeps_its_word():
    for name in NAMES:
        if re.search("big|base|/(post|pre|v)", name):
            _has_the_norm_and_size_of_its_name(name)


def _has_the_norm_and_size_of_its_name(name: str) -> None:
    model = loaded(name).model
    words = name.rpartition("/")[2].split("-")
    orders = {"post": "post_norm", "ds": "post_norm", "v1": "normalized", "plain": "post_norm"}
    orders["student"] = "post_norm"
    norm = ["pre_norm", *(orders[word] for word in words if word in orders)][-1]
    assert {model.encoder.residual.type, model.decoder.residual.type} == {norm}, name
    big, base = (1024, 16, 4096), (512, 8, 2048)
    encoder, decoder = (
        (model.width_of(side), getattr(model, side).heads, getattr(model, side).feed_forward)
        for side in SIDES
    )
    if words[-2:] == ["big", "encoder"]:
        assert (encoder, decoder) == (big, base), name
    else:
        assert encoder == decoder == (big if "big" in words else base), name


def test_names_correspond_to_values():
    for name in PUBLISHED:
        _has_the_values_of_its_name(name)


def _has_the_values_of_its_name(name: str) -> None:
    recipe = loaded(name)
    model, training = recipe.model, recipe.training
    row = name.rpartition("/")[2]
    words = {*row.split("-")}
    assert (model.encoder.depth, model.decoder.depth) == _depths(name)
    for combination in (model.encoder.combination, model.decoder.combination):
        assert isinstance(combination, slots.DynamicLinear) == ("dlcl" in words)
        if isinstance(combination, slots.DynamicLinear):
            assert (combination.norm == "none") == ("no-norm" in row)
            assert combination.learnable == ("fixed" not in words)
            assert (combination.initial == "one") == ("fixed-one" in row)
    if batch := re.search(r"-batch-(\d+)", row):
        assert training.batches.tokens_per_update == 8 * int(batch[1])
    merged = any(part.type == "merged_attention" for part in model.decoder.sublayers)
    blocks = model.encoder.combination.type == "sparse_blocks"
    scaled = {
        side: getattr(getattr(model, side).initializer or model.initializer, "exponent", None)
        for side in SIDES
    }
    assert merged == ("matt" in words)
    assert blocks == bool({"sdt", "sparse"} & words)
    alone = words & {*SIDES} or {*SIDES}
    assert scaled == {side: 0.25 if "ds" in words and side in alone else None for side in SIDES}
    assert bool(training.stages) == bool({"sdt", "stack"} & words)
    assert (model.positions.type == "relative") == ("rpr" in words)
    assert (model.bridge.type == "transparent") == ("transparent" in words)
    assert (model.initializer.type == "lipschitz") == ("lipschitz" in words)


def _depths(name: str) -> tuple[int, int]:
    """`dlcl-25` is 25+6 layers, `decoder-8` 6+8, `ds-12` 12+12, `v1-lipschitz-6-24` 6+24."""
    paper, _, row = name.partition("/")
    depths = [int(word) for word in re.findall(r"-(\d+)(?=-|$)", row.partition("-batch-")[0])]
    if "-decoder-" in row:
        return 6, depths[-1]
    first = (*depths, 6)[0]
    both = paper in ("zhang-2019", "xu-2020")
    return first, (6, *depths)[-1] if both else 6


def test_only_checkpoints_of_the_last_depth_are_averaged():
    for name in [name for name in PUBLISHED if "sdt" in name]:
        training = loaded(name).training
        an_epoch = 2_450 if "en-de" in name else 20_000
        grown = sum(stage.updates or (stage.epochs or 0) * an_epoch for stage in training.stages)
        every, averaged = training.checkpoints.every, training.checkpoints.average_last
        every = an_epoch if every == "1 epoch" else every
        assert averaged == 5, name
        assert grown < training.max_updates - (averaged - 1) * every, name


def test_a_last_component_is_enough_where_it_is_unique():
    assert load_recipe("post-dlcl-25") == load_recipe("wang-2019/wmt16-en-de/post-dlcl-25")
    with pytest.raises(ConfigError, match=r"pre-base: \d recipes match this name: choose li-2020/"):
        load_recipe("pre-base")
    with pytest.raises(ConfigError, match=r"\d\d recipes match this name: choose xu-2020/"):
        load_recipe("xu-2020")


def test_words_choose_among_the_listed():
    lines = invoke("list", "zhang", "ds-", "matt").splitlines()
    listed = [line.partition("\t")[0] for line in lines]
    assert listed == [n for n in NAMES if "zhang" in n and "ds-" in n and "matt" in n]
    assert "zhang-2019/wmt14-en-de/ds-12-matt" in listed
    with pytest.raises(UserError, match=r"^no recipe has zhang and quokka: leave out a word$"):
        invoke("list", "zhang", "quokka")


# Read in the files by grep: in their descriptions and references, as whole words.
@pytest.mark.parametrize(
    ("words", "inside", "not_inside"),
    [
        (["DLCL"], "wang-2019/wmt16-en-de/pre-dlcl-30", "wang-2019/wmt16-en-de/pre-20"),
        (["Table 1"], "wang-2019/wmt16-en-de/pre-dlcl-30", "zhang-2019/wmt14-en-de/ds-12-matt"),
        (["137m", "wang"], "wang-2019/wmt16-en-de/pre-dlcl-30", "wang-2019/wmt16-en-de/pre-20"),
    ],
    ids=" ".join,
)
def test_words_of_descriptions_and_references_choose_too(words, inside, not_inside):
    listed = [line.partition("\t")[0] for line in invoke("list", *words).splitlines()]
    assert inside in listed and not_inside not in listed and not_inside in NAMES


# The commands


def test_show_prints_a_recipe_that_loads_back_equal(tmp_path):
    shown = tmp_path / "shown.yaml"
    for name in NAMES[::24]:
        shown.write_text(invoke("show", name, "training.seed=11"), encoding="utf-8")
        assert load_recipe(str(shown)) == load_recipe(name, ["training.seed=11"])


def test_show_prints_the_origin_of_each_value():
    name = "wang-2019/wmt16-en-de/pre-20"
    resolved = resolve(name)
    text = invoke("show", name, "training.schedule.lr=1e-3")
    comments = dict(re.findall(r"^ *(\w+): .*  # (.*)$", text, flags=re.MULTILINE))
    assert (comments["lr"], comments["log_every"]) == ("override", "default")
    assert comments["lenpen"] == resolved.origin(("decoding", "lenpen"))
    assert _line(resolved.origin(("model", "encoder", "depth"))) == "  encoder: {depth: 20}"
    head, values = text.splitlines()[:3], text.splitlines()[3:]
    assert all("  # " in line for line in values if not line.endswith(":"))
    assert head[0].startswith("# Wang et al. 2019") and "106M parameters" in head[1]
    assert f"nmtdeep train {name} training.schedule.lr=1e-3 --data" in head[2]


def _line(origin: str) -> str:
    file, _, line = origin.rpartition(":")
    return (ROOT / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]


# The documents


def test_the_tables_of_both_pages_are_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    writer = importlib.import_module("write_config_reference")
    tables = {"config.md": writer.config_reference(), "recipes.md": writer.recipe_reference()}
    for name, text in tables.items():
        page = ROOT / "docs" / name
        assert page.read_text(encoding="utf-8") == writer.with_tables(page, text), (
            "run scripts/write_config_reference.py"
        )


def test_the_example_in_the_page_of_recipes_loads(tmp_path):
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "mine.yaml").write_text(example, encoding="utf-8")
    recipe = load_recipe(str(tmp_path / "mine.yaml"))
    assert (recipe.model.encoder.depth, recipe.model.width) == (12, 128)


# Recipes by size of data: each is one that was measured, for any languages

# Epochs of another corpus have other lengths.
BY_UPDATE = [f"training.{events}.every=2500" for events in ("validation", "checkpoints")]
# Each with the recipe that was measured, and its changes.
GENERAL = {
    "deep-small": (
        "multi30k-en-de-deep",
        ["model.dropout={embedding: 0.2, residual: 0.2}", "training.max_minutes=null"],
    ),
    "deep-base": ("wang-2019/wmt16-en-de/pre-20", [*BY_UPDATE, "model.positions.first=0"]),
    "deep-large": ("li-2020/wmt14-en-fr/sdt-rpr-48", ["model.positions.first=0"]),
}


@pytest.mark.parametrize("name", GENERAL)
def test_a_general_recipe_is_the_measured_one_that_its_note_names(name):
    measured, changes = GENERAL[name]
    general, row = load_recipe(name), load_recipe(measured, changes)
    assert general.model == row.model
    assert general.training == row.training
    source = (row.reference.paper.partition(",")[0], row.reference.table)
    for word in filter(None, source):
        assert word in general.reference.note
    assert not general.reference.scores, "the score would be that of another text"
    stated = (ROOT / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")
    assert not re.search(r"^ *(source|target|lowercase|chinese):", stated, re.M)
