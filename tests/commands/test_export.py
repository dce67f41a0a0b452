"""`nmtdeep export` on real runs: files, messages, and their use in other programs."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from markdown_it import MarkdownIt
from ruamel.yaml import YAML
from tools.export.models import update
from untrusted.strangers import rewrite

from commands.running import Interrupt
from commands.runs import train
from nmtdeep import checkpoint
from nmtdeep.config.decoding import Decoding

pytest.importorskip("ctranslate2")
CHECK = ("--check", "test.en", "test.de")
WRITE = "nmtdeep.tools.export.exporter:write_note"


@pytest.fixture(scope="session")
def post_norm(nmtdeep, data):
    stacks = [f"model.{stack}.residual=post_norm" for stack in ("encoder", "decoder")]
    done = train(nmtdeep, "post-norm", *stacks, "model.width=32")
    assert done.code == 0, done.err
    return nmtdeep.folder / "post-norm"


@pytest.fixture(scope="session")
def fluent(nmtdeep, post_norm):
    """A grown run that has learned the test set by heart, so that translations can be compared."""
    grown = nmtdeep("grow", post_norm, "--layers", 3, "--out", "grown")
    assert grown.code == 0, grown.err
    loaded = checkpoint.load_model(nmtdeep.folder / "grown")
    model, pipeline = loaded.model, loaded.pipeline
    source, target = (
        [encode(line) for line in lines(nmtdeep, f"test.{language}")]
        for language, encode in (("en", pipeline.source.encode), ("de", pipeline.target.encode))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)  # 1e-2 is unstable
    for _ in range(1500):
        if update(model, optimizer, source, target) < 0.05:
            break
    run = nmtdeep.folder / "fluent"
    checkpoint.save(
        run / "checkpoint_111",
        tensors=checkpoint.weights(model),
        state=loaded.state,
        # One length limit for all sentences, as in other programs. <unk> is allowed, because they
        # exclude it before the softmax and we after it, and this model has learned to write it.
        recipe=loaded.recipe.model_copy(
            update={
                "decoding": Decoding(allow_unk=True, max_length_factor=0, max_length_constant=120)
            }
        ),
        pipeline=pipeline,
    )
    assert len(set(translations(nmtdeep, run))) >= 8
    return run


def lines(nmtdeep, name: str) -> list[str]:
    return (nmtdeep.folder / name).read_text(encoding="utf-8").splitlines()


def translations(nmtdeep, run: Path) -> list[str]:
    done = nmtdeep("translate", "-m", run, "-i", "test.en", "--device", "cpu")
    assert done.code == 0, done.err
    return done.out.splitlines()


def shown(folder: Path) -> Any:
    """`translate` as the README of an export shows it, run there."""
    (block,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
    names: dict[str, Any] = {}
    exec(block.replace('Path(".")', f"Path({str(folder)!r})"), names)
    return names["translate"]


@pytest.mark.slow
def test_ctranslate2_translates_as_the_check_says_and_the_readme_shows(nmtdeep, fluent):
    done = nmtdeep("export", fluent, "--to", "ctranslate2", "-o", "ct2", *CHECK)
    assert done.code == 0, done.err
    ours, theirs = re.findall(r"^(?:nmtdeep|CTranslate2): BLEU (\S+),", done.out, re.M)
    assert ours == theirs
    assert "equal translations of nmtdeep and CTranslate2: 12 of 12 (100.0 %)" in done.out
    folder = nmtdeep.folder / "ct2"
    assert shown(folder)([*lines(nmtdeep, "test.en"), ""]) == [
        *translations(nmtdeep, fluent),
        "",
    ]
    assert json.loads((folder / "export.json").read_text())["format"] == "ctranslate2 float32"


@pytest.mark.slow
def test_transformers_translates_raw_text_as_the_card_shows(nmtdeep, fluent):
    pytest.importorskip("transformers")
    done = nmtdeep("export", fluent, "--to", "huggingface", "-o", "marian")
    assert done.code == 0, done.err
    folder = nmtdeep.folder / "marian"
    assert shown(folder)(lines(nmtdeep, "test.en")) == translations(nmtdeep, fluent)


def header(folder: Path) -> dict[str, Any]:
    return YAML(typ="safe").load((folder / "README.md").read_text().split("---\n")[1])


def test_a_card_has_the_scores_of_the_run_with_their_signatures(nmtdeep, whole):
    command = ("export", "--to", "huggingface", "-o")
    assert nmtdeep(*command, "card", whole).code == 0
    scores = json.loads((whole / "scores.json").read_text())["scores"]["test"]
    read = header(nmtdeep.folder / "card")
    assert read["language"] == ["en", "de"] and "license" not in read
    results = read["model-index"][0]["results"]
    (test,) = [result for result in results if result["dataset"]["type"] == "en-de-test"]
    for shown, stored in zip(test["metrics"], scores, strict=True):
        assert shown["value"] == pytest.approx(stored["value"], abs=0.005)
        assert stored["signature"] in shown["name"]
    text = (nmtdeep.folder / "card" / "README.md").read_text().split("---\n", 2)[2]
    row = ["test", *(f"{stored['value']:.2f}" for stored in scores)]
    assert f"| {' | '.join(row)} |" in text.splitlines()
    # A signature outside of code is read as Markdown.
    parts = MarkdownIt("commonmark").enable("table").parse(text)
    code = [part.content for whole in parts for part in whole.children or []]
    assert all(code.count(stored["signature"]) == 1 for stored in scores)
    assert nmtdeep(*command, "early", whole / "checkpoint_10").code == 0
    assert "model-index" not in header(nmtdeep.folder / "early")  # they are of another checkpoint


def test_only_an_export_is_replaced_and_only_on_request(nmtdeep, whole):
    command = ("export", whole, "--to", "huggingface", "-o")
    assert nmtdeep(*command, "twice").code == 0
    (nmtdeep.folder / "twice" / "old").touch()
    assert "add --overwrite" in nmtdeep(*command, "twice").err
    assert nmtdeep(*command, "twice", "--overwrite").code == 0
    assert not (nmtdeep.folder / "twice" / "old").exists()
    done = nmtdeep(*command, whole, "--overwrite")
    assert done.code == 2 and "is not an export" in done.err
    assert (whole / "checkpoint_last" / "state.json").is_file()


def test_an_interrupted_export_replaces_nothing(nmtdeep, whole):
    command = ("export", whole, "--to", "ctranslate2", "-o", "half", "--overwrite")
    folder = nmtdeep.folder / "half"
    assert nmtdeep(*command, interrupt=Interrupt(WRITE)).code == -9
    assert not folder.exists()
    assert nmtdeep(*command).code == 0
    (folder / "old").touch()
    assert nmtdeep(*command, interrupt=Interrupt(WRITE, what="int")).code == 130
    assert (folder / "old").exists() and (folder / "model.bin").exists()


@pytest.mark.slow
def test_a_worse_model_is_reported_with_its_own_exit_code(nmtdeep, fluent, tmp_path):
    run = shutil.copytree(fluent, tmp_path / "run", symlinks=True)
    # CTranslate2 has one limit for all sentences of a batch, so that it translates more.
    config = run / "checkpoint_111" / "config.yaml"
    rewrite(config, "max_length_factor: .*", "max_length_factor: 0.6")
    rewrite(config, "max_length_constant: .*", "max_length_constant: 3")
    own = tmp_path / "own"
    assert nmtdeep("translate", "-m", run, "-i", "test.en", "-o", own, "--device", "cpu").code == 0
    done = nmtdeep(
        "export", run, "--to", "ctranslate2", "--check", "test.en", own, "-o", tmp_path / "worse"
    )
    assert (done.code, "more than --max-loss" in done.err) == (3, True)
    assert (tmp_path / "worse" / "model.bin").is_file()
