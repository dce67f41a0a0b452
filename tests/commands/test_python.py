"""The Python interface returns what the command prints, and the code of its page runs."""

from typing import Any

import pytest
import typer.main
from pages import FENCE, ROOT

import nmtdeep as package
from commands.runs import UNUSUAL, translated
from nmtdeep.cli.main import app
from nmtdeep.config.decoding import DecodingOptions

SETTINGS: list[tuple[list[str], dict[str, Any]]] = [
    ([], {}),
    (["--beam", "2", "--lenpen", "1.5", "--lenpen-form", "gnmt", "--max-tokens", "50"],
     {"beam": 2, "lenpen": 1.5, "lenpen_form": "gnmt", "max_tokens": 50}),
    (["--max-source-tokens", "4", "--long-lines", "truncate", "--output-is", "bpe"],
     {"max_source_tokens": 4, "long_lines": "truncate", "output_is": "bpe"}),
    (["--input-is", "tokenized", "--output-is", "tokenized", "--precision", "bf16"],
     {"input_is": "tokenized", "output_is": "tokenized", "precision": "bf16"}),
    (["--quantize", "int8", "--device", "cpu", "--threads", "1"],
     {"quantize": "int8", "device": "cpu", "threads": 1}),
    (["--sampling", "--seed", "3", "--temperature", "0.7", "--top-k", "9", "--top-p", "0.9"],
     {"sampling": True, "seed": 3, "temperature": 0.7, "top_k": 9, "top_p": 0.9}),
]  # fmt: skip


@pytest.fixture(scope="session")
def lines(whole):
    text = (whole.parent / "test.en").read_text(encoding="utf-8")
    return [*text.splitlines(), *UNUSUAL]


@pytest.mark.parametrize(("words", "keywords"), SETTINGS, ids=str)
def test_lines_are_translated_as_by_the_command(nmtdeep, whole, lines, words, keywords):
    done = [texts[0] for texts in translated(nmtdeep, lines, "-m", whole, *words)]
    model = package.load(whole, **keywords)
    assert model.translate(lines) == done
    assert model.translate(iter(lines)) == done  # once more: draws and counts begin again


def test_an_ensemble_and_its_candidates_are_those_of_the_command(nmtdeep, whole, lines):
    both = [whole / "checkpoint_10", whole / "checkpoint_11"]
    done = translated(nmtdeep, lines, "-m", both[0], "-m", both[1], "--n-best", 2)
    model = package.load([str(path) for path in both], n_best=2)
    each = model.translations(lines)
    assert done == [
        [candidate.text for candidate in translation.candidates] for translation in each
    ]


def test_the_command_has_an_option_for_each_keyword():
    group = typer.main.get_command(app)
    command = group.get_command(typer.Context(group), "translate")  # type: ignore[attr-defined]
    of_files = {"model", "source", "output", "form", "alignments", "resume", "overwrite"}
    others = of_files | {"quiet", "verbose"}
    assert {option.name for option in command.params} - others == {*DecodingOptions.model_fields}


def test_what_the_command_refuses_is_a_user_error(whole):
    with pytest.raises(package.UserError, match="beam"):
        package.load(whole, n_best=3, beam=2)
    with pytest.raises(package.UserError, match="no model"):
        package.load([])
    with pytest.raises(package.UserError, match="list of lines"):
        package.load(whole).translate("one line")


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_code_of_a_page_runs(whole, page, tmp_path, monkeypatch):
    (tmp_path / "run").symlink_to(whole, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    blocks = FENCE.finditer((ROOT / page).read_text(encoding="utf-8"))
    shown = [block["body"] for block in blocks if block["language"] == "python"]
    assert shown
    for body in shown:
        exec(compile(body, page, "exec"), {})
