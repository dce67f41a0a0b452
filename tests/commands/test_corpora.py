"""Several corpora by the real commands: named everywhere, interrupted, resumed, refused."""

import json
from collections.abc import Sequence

import pytest

from commands.running import Finished, Interrupt
from commands.runs import contents, records, train

RECIPE = """
extends: tiny.yaml
text:
  bpe: {dropout: 0.1}
  tags: {web: "<bt>"}
training:
  max_updates: 10
  mixture: {clean: 0.7, web: 0.3}
  validation: {bleu: false}
  stages:
    - {epochs: 1, epochs_of: web}
    - {mixture: {temperature: 5}}
"""
CORPORA = ("--train", "clean=train", "--train", "web=web.jsonl", "--train", "crawl=test")


@pytest.fixture(scope="session")
def mixed(nmtdeep):
    """A data directory of three corpora; the second is a JSONL file."""
    sides = (
        (nmtdeep.folder / f"valid.{side}").read_text("utf-8").split("\n") for side in ("en", "de")
    )
    rows = [json.dumps({"en": en, "de": de}) for en, de in zip(*sides, strict=True)][:-1]
    (nmtdeep.folder / "web.jsonl").write_text("".join(f"{row}\n" for row in rows), "utf-8")
    (nmtdeep.folder / "mixed.yaml").write_text(RECIPE)
    done = nmtdeep(
        "preprocess", "mixed.yaml", *CORPORA, "--valid", "valid", "--out", "data-mixed",
        "--workers", 1,
    )  # fmt: skip
    assert done.code == 0, done.err
    return nmtdeep.folder / "data-mixed"


def mixed_train(
    nmtdeep, run: str, *overrides: object, interrupt: Interrupt | None = None
) -> Finished:
    how = {"recipe": "mixed.yaml", "data": "data-mixed", "interrupt": interrupt}
    return train(nmtdeep, run, *overrides, **how)


@pytest.mark.slow
def test_killed_in_both_stages_it_ends_as_the_whole(nmtdeep, mixed):
    whole = mixed_train(nmtdeep, "whole-mixed")
    assert whole.code == 0, whole.err
    assert (
        "mixture     70 % clean (200 pairs), 30 % web (20 pairs), 0 % crawl (12 pairs)" in whole.err
    )
    assert "stage 2 of 2 | update" in whole.err
    assert "| mixture temperature 5" in whole.err
    epochs = [record.get("epochs") for record in records(nmtdeep.folder / "whole-mixed")]
    assert {"clean": 1, "web": 1, "crawl": 0} in epochs
    interrupts: Sequence[Interrupt] = (
        Interrupt("nmtdeep.training.loss:smoothed_cross_entropy", 5),
        Interrupt("nmtdeep.training.loop:Recorder.updated", 4, "term"),
        Interrupt("nmtdeep.checkpoint:save_tensors", 3, "half"),
    )
    for interrupt in interrupts:
        assert mixed_train(nmtdeep, "cut-mixed", interrupt=interrupt).code in (-9, 143)
    assert mixed_train(nmtdeep, "cut-mixed").code == 0
    assert contents(nmtdeep.folder / "cut-mixed") == contents(nmtdeep.folder / "whole-mixed")
    shown = nmtdeep("inspect", "whole-mixed").out
    assert "complete epochs: clean " in shown


def test_commands_name_the_corpora(nmtdeep, mixed):
    shown = nmtdeep("inspect", mixed).out
    assert "training    clean, web, crawl" in shown
    assert "tag         <bt> before the source sentences of web" in shown
    dry = mixed_train(nmtdeep, "dry", "--dry-run")
    assert "70 % clean (200 pairs), 30 % web (20 pairs)" in dry.out + dry.err
