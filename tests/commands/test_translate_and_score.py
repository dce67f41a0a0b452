"""From raw text to scores by the real commands: N lines in, N lines out."""

import json
from pathlib import Path

import pytest
import sacrebleu

NASTY = (
    "Password\n"
    "\n"
    "   \n"
    "one\u2028line \u0085 only\x0b\n"
    "CRLF at the end\r\n"
    "emoji \U0001f600 and @@ and </s> <pad> &amp; |||\n"
    f"{'over-long ' * 300}\n"
    "no newline at the end"
)


def test_scores_are_those_of_sacrebleu(nmtdeep, whole):
    translated = nmtdeep("translate", "-m", whole, "-i", "test.en", "-o", "hypothesis.de")
    assert translated.code == 0 and "12 lines in" in translated.err
    hypotheses, references = (lines_of(nmtdeep.folder / f) for f in ("hypothesis.de", "test.de"))
    assert len(hypotheses) == len(references) == 12
    expected = {
        "BLEU": sacrebleu.corpus_bleu(hypotheses, [references]).score,
        "chrF2": sacrebleu.corpus_chrf(hypotheses, [references]).score,
        "TER": sacrebleu.corpus_ter(hypotheses, [references]).score,
    }
    scored = nmtdeep("score", "hypothesis.de", "test.de", "--json")
    values = [score["value"] for score in json.loads(scored.out)]
    assert values == pytest.approx(list(expected.values()), abs=1e-3)
    again = nmtdeep("score", "-m", whole, "--source", "test.en", "--reference", "test.de", "--json")
    assert [score["value"] for score in json.loads(again.out)] == values


def test_as_many_lines_out_as_in(nmtdeep, whole):
    (nmtdeep.folder / "nasty").write_bytes(NASTY.encode())
    done = nmtdeep("translate", "-m", whole, "-i", "nasty")
    assert done.code == 0, done.err
    lines = done.out.split("\n")
    assert len(lines) == 9 and lines[-1] == ""
    assert lines[1:3] == ["", ""]
    assert "8 lines in" in done.err and "1 over-long (split)" in done.err


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_empty_input_has_an_empty_output(nmtdeep, whole, form):
    done = nmtdeep("translate", "-m", whole, "--format", form, "-q")
    assert (done.code, done.out, done.err) == (0, "", "")


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
