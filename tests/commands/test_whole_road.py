"""From raw text to scores by the real commands; N lines in, N lines out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu

from commands.runs import train
from nmtdeep.text.pipeline import TextPipeline

SIDES = ("en", "de")
BPE_RECIPE = """
extends: tiny.yaml
text: {input: bpe, bpe: none}
training: {max_updates: 6}
"""
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


def test_score_prints_what_sacrebleu_says(nmtdeep, whole):
    made = nmtdeep("translate", "-m", whole, "-i", "test.en", "-o", "hypothesis.de")
    assert made.code == 0 and "12 lines in" in made.err
    hypotheses, references = (_lines(nmtdeep.folder / f) for f in ("hypothesis.de", "test.de"))
    assert len(hypotheses) == len(references) == 12
    expected = {
        "BLEU": sacrebleu.corpus_bleu(hypotheses, [references]).score,
        "chrF2": sacrebleu.corpus_chrf(hypotheses, [references]).score,
        "TER": sacrebleu.corpus_ter(hypotheses, [references]).score,
    }
    scored = nmtdeep("score", "hypothesis.de", "test.de", "--json")
    found = [score["value"] for score in _scores(scored.out)]
    assert found == pytest.approx(list(expected.values()), abs=1e-3)
    again = nmtdeep("score", "-m", whole, "--source", "test.en", "--reference", "test.de", "--json")
    assert [score["value"] for score in _scores(again.out)] == found
    report = json.loads((whole / "scores.json").read_text())["scores"]["test"]
    assert [score["value"] for score in report] == pytest.approx(found, abs=1e-3)


def _scores(printed: str) -> list[dict]:
    return json.loads(printed)


def test_log_prob_of_a_translation_is_what_translate_printed(nmtdeep, whole):
    printed = nmtdeep(
        "translate", "-m", whole, "-i", "train.en", "--format", "json", "--n-best", 8
    ).out
    target = TextPipeline.load(whole / "text")
    kept = []
    for record in map(json.loads, printed.splitlines()):
        for one in record["translations"]:
            # The model may split a word otherwise than BPE does; then it is another hypothesis.
            if target.split_target(one["text"]) == one["subwords"]:
                kept.append((record["source"], one["text"], one["log_prob"]))
    assert len(kept) >= 5
    _check_log_probs(nmtdeep, whole, kept)


def test_log_prob_of_the_search_s_own_subwords(nmtdeep, data):
    folder = nmtdeep.folder
    (folder / "bpe.yaml").write_text(BPE_RECIPE)
    pipeline = TextPipeline.load(data / "text")
    for split in ("train", "valid"):
        for language, side in (("en", pipeline.source), ("de", pipeline.target)):
            lines = [" ".join(side.split(line)) for line in _lines(folder / f"{split}.{language}")]
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"bpe-{split}.{language}").write_text(text, encoding="utf-8")
    nmtdeep(
        "preprocess", "bpe.yaml", "--train", "bpe-train", "--valid", "bpe-valid",
        "--out", "bpe-data", "--workers", 1,
    )  # fmt: skip
    assert train(nmtdeep, "bpe-run", recipe="bpe.yaml", data="bpe-data").code == 0
    printed = nmtdeep("translate", "-m", "bpe-run", "-i", "bpe-valid.en", "--format", "json").out
    records = [json.loads(line) for line in printed.splitlines()]
    assert len(records) == 20
    best = [(one["source"], one["translations"][0]) for one in records]
    _check_log_probs(
        nmtdeep, Path("bpe-run"), [(s, " ".join(b["subwords"]), b["log_prob"]) for s, b in best]
    )


def test_log_prob_of_subwords_is_that_of_the_raw_text(nmtdeep, whole):
    pipeline = TextPipeline.load(whole / "text")
    lines = {side: (nmtdeep.folder / f"test.{side}").read_text().splitlines() for side in SIDES}
    split = {"en": pipeline.split_source, "de": pipeline.split_target}
    for side in SIDES:
        text = "".join(" ".join(split[side](line, "raw")) + "\n" for line in lines[side])
        (nmtdeep.folder / f"split.{side}").write_text(text)
    judge = ("score", "-m", whole, "--log-prob", "--source")
    raw = nmtdeep(*judge, "test.en", "--target", "test.de")
    bpe = nmtdeep(*judge, "split.en", "--target", "split.de", "--input-is", "bpe")
    assert raw.code == 0 and raw.out == bpe.out
    assert nmtdeep(*judge, "split.en", "--target", "split.de").out != raw.out


def _check_log_probs(nmtdeep, run: Path, rows: list[tuple[str, str, float]]) -> None:
    for name, column in (("forced.en", 0), ("forced.de", 1)):
        text = "".join(f"{row[column]}\n" for row in rows)
        (nmtdeep.folder / name).write_text(text, encoding="utf-8")
    scored = nmtdeep(
        "score", "-m", run, "--source", "forced.en", "--target", "forced.de", "--log-prob", "--json"
    )
    assert scored.code == 0, scored.err
    found = [row["log_prob"] for row in json.loads(scored.out)]
    assert found == pytest.approx([log_prob for *_, log_prob in rows], abs=1e-4)


@pytest.mark.parametrize("source", ["file", "stream"])
def test_as_many_lines_out_as_in(nmtdeep, whole, tmp_path, source):
    data = NASTY.encode()
    (tmp_path / "nasty").write_bytes(data)
    option = ("-i", tmp_path / "nasty") if source == "file" else ()
    done = nmtdeep("translate", "-m", whole, *option, stdin=data)
    assert done.code == 0, done.err
    lines = done.out.split("\n")
    assert len(lines) == 9 and lines[-1] == ""
    assert lines[1:3] == ["", ""]
    assert "8 lines in" in done.err and "1 over-long (split)" in done.err


def test_carriage_returns_change_nothing(nmtdeep, whole):
    text = "Password\nInvalid code\n"
    unix = nmtdeep("translate", "-m", whole, stdin=text.encode())
    windows = nmtdeep("translate", "-m", whole, stdin=text.replace("\n", "\r\n").encode())
    assert windows.out == unix.out


@pytest.mark.parametrize("form", ["text", "json", "tsv", "fairseq"])
@pytest.mark.parametrize("name", ["empty", "-"])
def test_nothing_in_nothing_out(nmtdeep, whole, form, name):
    (nmtdeep.folder / "empty").write_bytes(b"")
    done = nmtdeep("translate", "-m", whole, "-i", name, "--format", form, "-q")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_reader_that_leaves_early(folder, whole):
    command = [sys.executable, "-m", "nmtdeep", "translate", "-m", str(whole), "-i", "train.en"]
    with subprocess.Popen(
        [*command, "--format", "json", "--n-best", "4", "-q"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, pipesize=4096,
    ) as process:  # fmt: skip
        assert process.stdout and process.stderr
        assert json.loads(process.stdout.readline())["line"] == 1
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_output_is_utf8_whatever_the_locale_says(folder, whole):
    done = subprocess.run(
        [sys.executable, "-m", "nmtdeep", "translate", "-m", str(whole), "-q", "--format", "json"],
        input="größe ☃\n".encode(),
        env={"PYTHONIOENCODING": "latin-1", "OMP_NUM_THREADS": "1"},
        capture_output=True, cwd=folder, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.decode("utf-8"))["source"] == "größe ☃"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
