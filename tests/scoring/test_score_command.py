"""`nmtdeep score` itself: its output, and its errors for bad input."""

import gzip
import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nmtdeep.cli.main import app
from nmtdeep.errors import UserError

REFERENCE = ["Der Hund läuft über die Wiese.", "Eine Frau liest ein Buch im Park.", "Zwei Kinder."]
HYPOTHESES = ["Der Hund rennt über die Wiese.", "Eine Frau liest ein Buch im Park.", "Kinder."]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("hyp", HYPOTHESES)
    write("ref", REFERENCE)
    return tmp_path


def write(name: str, lines: list[str]) -> None:
    Path(name).write_bytes("".join(line + "\n" for line in lines).encode())


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["score", *arguments], input=stdin)


def printed(*arguments: str, stdin: bytes | None = None) -> list[str]:
    result = invoke(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.exception
    return result.stdout.splitlines()


def refused(*arguments: str) -> str:
    result = invoke(*arguments)
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


def test_plain_lines(here):
    bleu, chrf, ter = printed("hyp", "ref")
    # right, of the n-grams in line 1 + 2 + 3: 6 + 8 + 2 of 7 + 8 + 2 words, 4 + 7 + 1 of 14 pairs,
    # 2 + 6 of 11 triples, 1 + 5 of 9 quadruples; 17 words for 18
    precisions = 16 / 17 * 12 / 14 * 8 / 11 * 6 / 9
    expected = 100 * precisions**0.25 * math.exp(1 - 18 / 17)
    assert bleu.startswith(f"BLEU {expected:.2f} nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")
    assert ", brevity penalty 0.943, " in bleu
    assert chrf.startswith("chrF2 ")
    assert ter.startswith("TER 13.33 ")  # one word changed and one missing, of 15


def test_stdin_gzip_and_several_references(here):
    with gzip.open("other.gz", "wt", encoding="utf-8") as stream:
        stream.writelines(line + "\n" for line in HYPOTHESES)
    stdin = Path("hyp").read_bytes()
    (line,) = printed("-", "ref", "other.gz", "--metric", "bleu", stdin=stdin)
    assert line.startswith("BLEU 100.00 nrefs:2|")


def test_each_system_is_a_line_with_its_difference(here):
    write("[bold]same\x1b", HYPOTHESES)
    arguments = ("--system", "[bold]same\x1b", "--trials", "50", "--metric", "chrf")
    _, baseline, line = printed("hyp", "ref", *arguments)
    assert re.match(r"compare hyp chrF2 \S+ baseline nrefs:\S+ mean \S+ ± \S+$", baseline)
    assert line.startswith("compare [bold]same\\x1b chrF2 ")
    assert "+0.00 p=1.0000 nrefs:1|bs:50|seed:12345|" in line
    line = printed("hyp", "ref", *arguments, "--paired", "randomization")[-1]
    assert "+0.00 p=1.0000 nrefs:1|ar:50|seed:12345|" in line


CHINESE = ["我喜欢在公园里散步。", "今天天气很好，我们去海边吧。", "你好"]
RAW = ["Der Hund läuft.", "Eine Frau.", "Zwei Kinder."]
TOKENS = ["Der Hund läuft .", "Eine Frau .", "Zwei Kinder ."]
BPE, PIECES = ["Der Hu@@ nd", "Ei@@ ne Frau", "Zwei"], ["▁Der ▁Hu nd", "▁Ei ne", "▁Zwei"]
MAIL = ["an a@@b.de address and a ▁ alone in the", "middle", "of lines"] * 10
LONG = ["X", "a " * 201, "X"]


@pytest.mark.parametrize(
    ("hypotheses", "reference", "options", "warning"),
    [
        (RAW, RAW, "", None),
        (TOKENS, RAW, "", "the hypotheses look tokenized, but bleu, chrf, ter expect raw text"),
        (RAW, TOKENS, "", "the reference looks tokenized"),
        (RAW, RAW, "--system tokens --trials 9", "tokens looks tokenized"),
        (RAW, RAW, "--metric bleu-tok", "looks raw, but bleu-tok counts the.*--tokenize LANG"),
        ([line.lower() for line in RAW], RAW, "", "and bleu, chrf count each one of"),
        ([line.lower() for line in RAW], RAW, "--metric bleu-lc --metric ter", None),
        ([line.lower() for line in RAW], RAW, "--metric bleu-intl", "use --metric bleu-intl-lc$"),
        (["我买了新的iphone手机。"] * 3, ["我买了新的iPhone手机。"] * 3, "--metric bleu-zh", None),
        (["قرأت الكتاب"] * 3, ["قرأت كتاب Python"] * 3, "", None),
        (CHINESE, CHINESE, "", "bleu, ter count a line as about one word: use --metric bleu-zh"),
        (CHINESE, CHINESE, "--metric bleu-zh --metric chrf --metric bleu-char", None),
        (["私は東京に行きます。"] * 3, ["ありがとう"] * 3, "--metric bleu", "bleu-(ja|char) "),
        (["Sie kam aus 北京."] * 3, ["Er kam aus 北京."] * 3, "", None),
        (RAW, BPE, "", r"there are subwords \(@@\) in the reference"),
        (PIECES, RAW, "", r"there are subwords \(▁\) in the hypotheses"),
        (MAIL, MAIL, "", None),
        (LONG, RAW, "--metric ter", "line 2 has 201 words, and ter takes minutes"),
    ],
)
def test_text_of_the_wrong_form_causes_a_warning(here, hypotheses, reference, options, warning):
    write("hyp", hypotheses)
    write("ref", reference)
    write("tokens", TOKENS)
    printed_to_stderr = invoke("hyp", "ref", *options.split()).stderr
    assert re.search(warning, printed_to_stderr) if warning else printed_to_stderr == ""


def test_bad_files_are_named(here):
    write("short", REFERENCE[:2])
    assert "hyp has 3, short has 2" in refused("hyp", "ref", "short")
    assert "hyp has 3, short has 2" in refused("hyp", "ref", "--system", "short")
    assert "nowhere" in refused("hyp", "nowhere")
    result = invoke("-", "ref", stdin=b"")
    assert "stdin: nothing to score" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hyp",), "pass HYP and REF"),
        (("hyp", "ref", "--metric", "belu"), "did you mean bleu?"),
        (("hyp", "ref", "--tokenize", "de"), "add --metric bleu-tok"),
        (("hyp", "ref", "--log-prob"), "add --model"),
        (("-", "-"), "only once"),
        (("-m", "run", "--log-prob"), "--model: takes --source FILE and --target FILE"),
    ],
)
def test_contradictions_are_refused(here, arguments, message):
    assert message in refused(*arguments)
