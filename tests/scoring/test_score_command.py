"""`nmtdeep score` itself: what it prints, and what it says of bad input."""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nmtdeep.cli.main import app
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.errors import UserError
from nmtdeep.scoring import METRICS

REFERENCE = ["Der Hund läuft über die Wiese.", "Eine Frau liest ein Buch im Park.", "Zwei Kinder."]
HYPOTHESES = ["Der Hund rennt über die Wiese.", "Eine Frau liest ein Buch im Park.", "Kinder."]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_plain_lines(here: Path) -> None:
    bleu, chrf, ter = printed("hyp", "ref")
    # right, of the n-grams in line 1 + 2 + 3: 6 + 8 + 2 of 7 + 8 + 2 words, 4 + 7 + 1 of 14 pairs,
    # 2 + 6 of 11 triples, 1 + 5 of 9 quadruples; 17 words for 18
    precisions = 16 / 17 * 12 / 14 * 8 / 11 * 6 / 9
    expected = 100 * precisions**0.25 * math.exp(1 - 18 / 17)
    assert bleu.startswith(f"BLEU {expected:.2f} nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")
    assert ", brevity penalty 0.943, " in bleu
    assert chrf.startswith("chrF2 ")
    assert ter.startswith("TER 13.33 ")  # one word changed and one missing, of 15


def test_stdin_gzip_and_several_references(here: Path) -> None:
    with gzip.open("other.gz", "wt", encoding="utf-8") as stream:
        stream.writelines(line + "\n" for line in HYPOTHESES)
    stdin = Path("hyp").read_bytes()
    (line,) = printed("-", "ref", "other.gz", "--metric", "bleu", stdin=stdin)
    assert line.startswith("BLEU 100.00 nrefs:2|")


def test_json_has_everything(here: Path) -> None:
    write("worse", ["Hund.", "Frau.", "Buch."])
    arguments = ("--system", "worse", "--trials", "20", "--json", "--metric", "bleu")
    entries = json.loads("\n".join(printed("hyp", "ref", *arguments)))
    assert [entry["kind"] for entry in entries] == ["score", "comparison", "comparison"]
    whole, baseline, other = entries
    assert (whole["system"], whole["metric"], len(whole["details"]["precisions"])) == (
        ("hyp", "bleu", 4)
    )
    assert (baseline["p_value"], other["system"]) == (None, "worse")
    assert whole["value"] == baseline["value"]
    assert all("version:" in entry["signature"] for entry in entries)


def test_each_system_is_a_line_with_its_difference(here: Path) -> None:
    write("[bold]same\x1b", HYPOTHESES)
    arguments = ("--system", "[bold]same\x1b", "--trials", "50", "--seed", "3", "--metric", "chrf")
    _, baseline, other = printed("hyp", "ref", *arguments)
    assert re.match(r"compare hyp chrF2 \S+ baseline nrefs:\S+ mean \S+ ± \S+$", baseline)
    assert other.startswith("compare [bold]same\\x1b chrF2 ")
    assert "+0.00 p=1.0000 nrefs:1|bs:50|seed:3|" in other
    other = printed("hyp", "ref", *arguments, "--paired", "randomization")[-1]
    assert "+0.00 p=1.0000 nrefs:1|ar:50|seed:3|" in other


def test_u2028_does_not_end_a_line(here: Path) -> None:
    write("hyp", ["a\u2028b c d e", "f g h i", "k l m n\u0085o"])
    write("ref", ["a\u2028b c d e", "f g h i", "k l m n\u0085o"])
    (line,) = printed("hyp", "ref", "--metric", "bleu-tok")
    assert line.startswith("BLEU-tok 100.00 ")


def test_warnings_for_the_wrong_kind_of_text(here: Path) -> None:
    write("tokens", ["Der Hund läuft .", "Eine Frau .", "Zwei Kinder ."])
    assert "look tokenized, but bleu, chrf, ter expect raw text" in invoke("tokens", "ref").stderr
    raw = invoke("hyp", "ref", "--metric", "bleu-tok").stderr
    assert "the reference looks raw" in raw
    assert "--tokenize LANG" in raw
    assert invoke("hyp", "ref", "--metric", "bleu-tok", "--tokenize", "de").stderr == ""
    assert invoke("tokens", "tokens", "--metric", "bleu-tok").stderr == ""
    assert invoke("hyp", "ref").stderr == ""


def test_lower_cased_hypotheses_are_warned_of_where_case_counts(here: Path) -> None:
    write("lower", ["der hund läuft.", "eine frau.", "zwei kinder."])
    assert "and bleu, chrf count each one of" in invoke("lower", "ref").stderr
    for metrics in (("bleu-lc", "ter"), ("bleu-tok-lc",), ("bleu-intl-lc",)):
        chosen = [part for metric in metrics for part in ("--metric", metric)]
        assert "capital" not in invoke("lower", "ref", *chosen).stderr
    assert "capital" not in invoke("lower", "lower").stderr


@pytest.mark.parametrize(
    ("mark", "pieces"),
    [("@@", ["Der Hu@@ nd", "Ei@@ ne Frau", "Zwei"]), ("▁", ["▁Der ▁Hu nd", "▁Ei ne", "▁Zwei"])],
)
def test_subwords_are_warned_of_on_either_side(here: Path, mark: str, pieces: list[str]) -> None:
    write("pieces", pieces)
    for name, files in (("hypotheses", ("pieces", "ref")), ("reference", ("hyp", "pieces"))):
        said = invoke(*files).stderr
        assert f"there are subwords ({mark}) in the {name}" in said
        assert said.count("subwords") == 1
    write("mail", ["an a@@b.de address and a ▁ alone in the", "middle", "of lines"] * 10)
    assert "subwords" not in invoke("mail", "mail").stderr


def test_ter_of_long_lines_is_warned_of(here: Path) -> None:
    for name, words in (("long", 201), ("short", 200)):
        for side in ("hyp", "ref"):
            (here / f"{name}.{side}").write_text("x\n" + "a " * words + "\n")
    files = ("long.hyp", "long.ref")
    assert "line 2 has 201 words, and ter takes minutes" in invoke(*files).stderr
    assert "minutes" not in invoke(*files, "--metric", "bleu").stderr
    assert "minutes" not in invoke("short.hyp", "short.ref").stderr


def test_bad_files_are_named(here: Path) -> None:
    write("short", REFERENCE[:2])
    assert "hyp has 3, short has 2" in refused("hyp", "ref", "short")
    assert "hyp has 3, short has 2" in refused("hyp", "ref", "--system", "short")
    assert "nowhere" in refused("hyp", "nowhere")
    Path("empty").write_bytes(b"")
    assert "empty" in refused("empty", "ref")
    Path("latin").write_bytes(b"gut\nsch\xf6n\ngut\n")
    message = refused("hyp", "latin")
    assert "latin" in message
    assert "2" in message
    assert "UTF-8" in message
    result = invoke("-", "ref", stdin=b"")
    assert "stdin: nothing to score" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hyp",), "give HYP and REF"),
        (("hyp", "ref", "--metric", "belu"), "did you mean bleu?"),
        (("hyp", "ref", "--tokenize", "de"), "add --metric bleu-tok"),
        (("hyp", "ref", "--replace-unicode-punctuation"), "--tokenize LANG"),
        (("hyp", "ref", "--log-prob"), "add --model"),
        (("hyp", "ref", "--source", "ref"), "--source: needs a model"),
        (("-", "-"), "only once"),
        (("-m", "run", "--source", "hyp"), "--model: also needs --reference"),
        (("-m", "run", "--log-prob"), "--model: also needs --source and --target"),
        (("hyp", "-m", "run", "--source", "hyp", "--reference", "ref"), "HYP and REF: cannot"),
    ],
)
def test_contradictions_are_refused(here: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(*arguments)


@dataclass
class Line:
    text: str = ""
    log_prob: float = 0.0
    tokens: tuple[float, ...] = ()


@pytest.fixture
def model(here: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A translator that knows `HYPOTHESES` by heart, and -1 per letter for every translation."""
    seen: dict[str, object] = {}

    class Translator:
        @classmethod
        def load(cls, paths: list[Path], options: DecodingOptions) -> Translator:
            seen.update(options.model_dump(exclude_unset=True), paths=paths)
            return cls()

        def __enter__(self) -> Translator:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def translate(self, lines: list[str]) -> Iterator[Line]:
            seen["lines"] = list(lines)
            return (Line(text) for text in HYPOTHESES)

    def log_probabilities(_: Translator, sources: list[str], targets: list[str]) -> Iterator[Line]:
        seen["lines"] = sources
        return (Line(t, -float(len(t)), (-1.0,) * len(t)) for t in targets)

    fakes = {"translator": {"Translator": Translator}, "forced": {"log_probabilities": None}}
    fakes["forced"]["log_probabilities"] = log_probabilities
    for name, contents in fakes.items():
        module = types.ModuleType(f"nmtdeep.decoding.{name}")
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, f"nmtdeep.decoding.{name}", module)
    write("src", ["The dog.", "A woman.", "Two children."])
    return seen


def test_a_model_scores_as_its_translations_do(model: dict[str, object]) -> None:
    arguments = ("-m", "run", "-m", "other", "--source", "src", "--reference", "ref")
    options = ("--device", "cuda:1", "--precision", "fp32", "--threads", "1", "--beam", "7")
    assert printed(*arguments, *options) == printed("hyp", "ref")
    assert model == {
        "paths": [Path("run"), Path("other")],
        "lines": ["The dog.", "A woman.", "Two children."],
        "beam": 7,
        "device": "cuda:1",
        "precision": "fp32",
        "threads": 1,
    }
    (entry,) = json.loads("\n".join(printed(*arguments, "--json", "--metric", "ter")))
    assert entry["system"] == "run+other"


def test_files_are_checked_before_the_model_is_loaded(model: dict[str, object]) -> None:
    write("short", REFERENCE[:2])
    assert "src has 3, short has 2" in refused(
        "-m", "run", "--source", "src", "--reference", "short"
    )
    assert model == {}


def test_log_probabilities(model: dict[str, object]) -> None:
    write("target", ["abc", "ab", "a"])
    arguments = ("-m", "run", "--source", "src", "--target", "target", "--log-prob")
    result = invoke(*arguments)
    assert result.stdout.splitlines() == [
        "-3.0000\t3\t-1.0000",
        "-2.0000\t2\t-1.0000",
        "-1.0000\t1\t-1.0000",
    ]
    assert "3 sentences, 6 tokens, log-probability -6.00, perplexity 2.718" in result.stderr
    rows = json.loads(invoke(*arguments, "--json").stdout)
    assert rows[2] == {"log_prob": -1.0, "tokens": 1, "per_token": -1.0, "each": [-1.0]}


def test_the_documented_commands_run(model: dict[str, object]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "scoring.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    commands = [line.split() for block in blocks for line in block.splitlines()]
    assert len(commands) > 8
    for program, subcommand, *arguments in commands:
        assert (program, subcommand) == ("nmtdeep", "score")
        for argument in arguments:
            if argument.endswith(".txt"):
                write(argument, HYPOTHESES if argument.startswith("hyp") else REFERENCE)
        assert printed(*arguments)


def test_every_metric_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "scoring.md").read_text(encoding="utf-8")
    assert not [name for name in METRICS if f"| `{name}` |" not in text]
