"""From raw text to scores by the real commands: N lines in, N lines out."""

import json
from pathlib import Path

import pytest
import sacrebleu

from commands.running import Commands, Interrupt
from nmtdeep.text.pipeline import TextPipeline

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


def test_log_prob_of_a_translation_equals_that_of_translate(nmtdeep, whole):
    printed = nmtdeep(
        "translate", "-m", whole, "-i", "train.en", "--format", "json", "--n-best", 8
    ).out
    pipeline = TextPipeline.load(whole / "text")
    raw, subwords = [], []
    for record in map(json.loads, printed.splitlines()):
        source = record["source"]
        for best in record["translations"]:
            pieces, log_prob = best["subwords"], best["log_prob"]
            # The model may split a word otherwise than BPE does: raw text is another hypothesis.
            if pipeline.target.split(best["text"]) == pieces:
                raw.append((source, best["text"], log_prob))
            if pieces:
                split = " ".join(pipeline.source.split(source))
                subwords.append((split, " ".join(pieces), log_prob))
    assert len(raw) >= 5 and len(subwords) >= 200
    check_log_probs(nmtdeep, whole, raw)
    check_log_probs(nmtdeep, whole, subwords, "--input-is", "bpe")


def check_log_probs(
    nmtdeep: Commands, run: Path, rows: list[tuple[str, str, float]], *options: str
) -> None:
    for name, column in (("forced.en", 0), ("forced.de", 1)):
        text = "".join(f"{row[column]}\n" for row in rows)
        (nmtdeep.folder / name).write_text(text, encoding="utf-8")
    texts = ("--source", "forced.en", "--target", "forced.de")
    scored = nmtdeep("score", "-m", run, *texts, "--log-prob", "--json", *options)
    assert scored.code == 0, scored.err
    sums = [row["log_prob"] for row in json.loads(scored.out)]
    assert sums == pytest.approx([log_prob for *_, log_prob in rows], abs=1e-4)


def test_as_many_lines_out_as_in(nmtdeep, whole):
    (nmtdeep.folder / "nasty").write_bytes(NASTY.encode())
    done = nmtdeep("translate", "-m", whole, "-i", "nasty")
    assert done.code == 0, done.err
    lines = done.out.split("\n")
    assert len(lines) == 9 and lines[-1] == ""
    assert lines[1:3] == ["", ""]
    assert "8 lines in" in done.err and "1 over-long (split)" in done.err


def test_as_many_lines_out_as_in_with_a_column_of_prefixes(nmtdeep, whole):
    rows = "".join(f"{line}\tInvalid\n" for line in NASTY.split("\n"))
    done = nmtdeep("translate", "-m", whole, "--prefix-column", stdin=rows.encode())
    assert done.code == 0, done.err
    lines = done.out.split("\n")
    assert len(lines) == 9 and lines[-1] == ""
    starts = [line.split()[:1] for line in lines[:-1]]
    assert starts == [["Invalid"], [], [], *[["Invalid"]] * 5]
    wrong = nmtdeep("translate", "-m", whole, "--prefix-column", stdin=b"Password\ta\tb\n")
    assert wrong.code == 2 and "input line 1: " in wrong.err


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_empty_input_has_an_empty_output(nmtdeep, whole, form):
    done = nmtdeep("translate", "-m", whole, "--format", form, "-q")
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize("what", ["kill", "term"])
def test_a_translation_that_was_interrupted_is_resumed(nmtdeep, whole, tmp_path, what):
    command = ("translate", "-m", whole, "-i", "train.en", "-q", "--n-best", 3, "-o")
    assert nmtdeep(*command, tmp_path / "whole").code == 0
    cut = Interrupt("nmtdeep.decoding.streams:render", 60, what)
    out = tmp_path / "out"
    assert nmtdeep(*command, out, interrupt=cut).code == {"kill": -9, "term": 143}[what]
    assert nmtdeep(*command, out, "--resume").code == 0
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
