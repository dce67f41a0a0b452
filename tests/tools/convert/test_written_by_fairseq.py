"""Checkpoints that fairseq itself wrote have the log-probabilities that it printed."""

import math
from pathlib import Path

import pytest

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.log_probs import log_probabilities
from nmtdeep.decoding.translator import Translator
from nmtdeep.tools.convert import TextOptions
from nmtdeep.tools.convert.fairseq import convert

FILES = Path(__file__).parent / "written_by_fairseq"
# Divisors of fairseq-generate's numbers: later versions print logarithms to base 2.
UNITS = {"0.6.2": 1.0, "dlcl-pre": 1.0, "dlcl-post": 1.0, "0.9.0": 1.0, "0.12.2": math.log(2)}


@pytest.mark.parametrize("version", UNITS)
def test_log_probabilities_equal_those_of_fairseq(version, tmp_path):
    files = FILES / version
    dictionaries = [files / "dict.en.txt", files / "dict.de.txt"]
    out = tmp_path / "converted"
    recipe, _ = convert(files / "checkpoint.pt", dictionaries, out, TextOptions())
    assert (recipe.text.source, recipe.text.target) == ("en", "de")
    combination = "dlcl" if version.startswith("dlcl") else "residual"
    assert {recipe.model.encoder.combination.type, recipe.model.decoder.combination.type} == {
        combination
    }
    rows = [line.split("\t") for line in (files / "expected.tsv").read_text().splitlines()]
    sources, targets, printed = zip(*rows, strict=True)
    translator = Translator.load([out], DecodingOptions(device="cpu"))
    scores = log_probabilities(translator, sources, targets)
    assert len(scores) == 20
    for score, expected in zip(scores, printed, strict=True):
        tokens = [token / UNITS[version] for token in score]
        # Four digits are printed.
        assert tokens == pytest.approx([float(token) for token in expected.split()], abs=6e-5)
    # The models have learned, so a missing weight would be noticed.
    assert sum(map(sum, scores)) / sum(map(len, scores)) > -1.2
