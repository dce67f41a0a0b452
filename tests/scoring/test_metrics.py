"""Scores equal hand calculations, slow independent ones, and sacreBLEU's own command."""

import math
import sys
from collections import Counter

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER

from nmtdeep import __version__
from nmtdeep.config.text import Text
from nmtdeep.config.training import Validation
from nmtdeep.errors import UserError
from nmtdeep.scoring import METRICS, score_texts, scorers
from nmtdeep.scoring.metrics import best_figure, label_of, tokenization_for, usual_metrics
from nmtdeep.scoring.tokenized import MosesPreparation, compound_split

from .conftest import damage


def value(hypotheses: list[str], references: list[list[str]], metric: str, **options) -> float:
    (score,) = score_texts(hypotheses, references, scorers([metric], **options))
    assert score.metric == metric
    return score.value


def slow_bleu(hypotheses: list[str], references: list[list[str]]) -> float:
    """BLEU from its definition, on words parted by single spaces, with no smoothing."""
    matches, totals, hypothesis_length, reference_length = [0] * 4, [0] * 4, 0, 0
    for index, hypothesis in enumerate(hypotheses):
        words = hypothesis.split(" ")
        others = [lines[index].split(" ") for lines in references]
        hypothesis_length += len(words)
        reference_length += min(
            (len(reference) for reference in others), key=lambda n: (abs(n - len(words)), n)
        )
        for n in range(1, 5):
            ours = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
            theirs: Counter[tuple[str, ...]] = Counter()
            for reference in others:
                theirs |= Counter(
                    tuple(reference[i : i + n]) for i in range(len(reference) - n + 1)
                )
            matches[n - 1] += sum((ours & theirs).values())
            totals[n - 1] += sum(ours.values())
    if 0 in matches:
        return 0.0
    precision = math.prod(m / t for m, t in zip(matches, totals, strict=True)) ** 0.25
    return 100 * precision * min(1, math.exp(1 - reference_length / hypothesis_length))


@pytest.mark.parametrize(
    ("hypothesis", "references", "expected"),
    [
        # 5/6 * 3/5 * 2/4 * 1/3 = 1/12: the second "the" is clipped
        ("the cat sat on the mat", ["the cat sat on a mat"], 100 * (1 / 12) ** 0.25),
        # all n-grams right, 4 words for 6
        ("the cat sat on", ["the cat sat on a mat"], 100 * math.exp(1 - 6 / 4)),
        # lengths 3 and 5 are as close to 4: the shorter counts, so no brevity penalty
        ("a b c d", ["a b c", "a b c d e"], 100.0),
        # no 4-gram is right: 0, as multi-bleu.perl has it
        ("a b c x", ["a b c d"], 0.0),
        # no 4-gram at all
        ("a b c", ["a b c"], 0.0),
    ],
)
def test_tokenized_bleu_by_hand(hypothesis, references, expected):
    got = value([hypothesis], [[line] for line in references], "bleu-tok")
    assert got == pytest.approx(expected, abs=1e-9)


def test_standard_bleu_smooths_by_hand():
    # 3/4 * 2/3 * 1/2 * 1/(2 * 1): the first empty precision counts as half a match
    assert value(["a b c x"], [["a b c d"]], "bleu") == pytest.approx(100 * (1 / 8) ** 0.25)


def test_ter_by_hand():
    assert value(["a b c d"], [["a b x d"]], "ter") == pytest.approx(25)  # one substitution
    assert value(["b c a"], [["a b c"]], "ter") == pytest.approx(100 / 3)  # one shift


def test_tokenized_bleu_equals_the_slow_one_on_real_text(tokens):
    for every in (2, 7):
        damaged = damage(tokens, every=every)
        second = damage(tokens, every=every + 2)
        for references in ([tokens], [tokens, second], [second, tokens]):
            assert value(damaged, references, "bleu-tok") == pytest.approx(
                slow_bleu(damaged, references), abs=1e-9
            )


def test_compound_bleu_equals_the_slow_one_on_split_text(german):
    damaged = damage(german, every=2)
    split = [[compound_split(line) for line in lines] for lines in (damaged, german)]
    assert split[1] != german
    expected = slow_bleu(split[0], [split[1]])
    assert value(damaged, [german], "bleu-compound") == pytest.approx(expected, abs=1e-9)
    assert expected != pytest.approx(value(damaged, [german], "bleu-tok"), abs=1e-3)


def test_scores_and_signatures_equal_those_of_sacrebleu(german):
    german = german[:300]
    damaged = damage(german, every=2)
    theirs = {
        "bleu": BLEU(),
        "bleu-lc": BLEU(lowercase=True),
        "bleu-intl": BLEU(tokenize="intl"),
        "bleu-intl-lc": BLEU(tokenize="intl", lowercase=True),
        "bleu-zh": BLEU(tokenize="zh"),
        "bleu-char": BLEU(tokenize="char"),
        "chrf": CHRF(),
        "chrf++": CHRF(word_order=2),
        "ter": TER(),
    }
    for score in score_texts(damaged, [german], list(theirs)):
        expected = theirs[score.metric].corpus_score(damaged, [german])
        assert score.value == pytest.approx(expected.score, abs=5e-5)
        assert score.signature == theirs[score.metric].get_signature().format()
        assert label_of(score.metric).startswith(expected.name)


def test_other_spaces_stay_inside_a_word():
    # as in multi-bleu.perl, which splits bytes: "a<nbsp>b" is one word of four
    hypothesis = "a\u00a0b c\u2028d e f"
    assert value([hypothesis], [[hypothesis]], "bleu-tok") == pytest.approx(100)
    (score,) = score_texts([hypothesis], [[hypothesis]], ["bleu-tok"])
    assert score.details["hypothesis_length"] == 4
    # and the kinds of space are different letters
    assert value(["a\u00a0b c d e"], [["a\u2009b c d e"]], "bleu-tok") == 0


def test_case_matters_only_where_it_should():
    hypothesis, reference = ["Ein ÄRGER mit dem Hund"], ["ein ärger mit dem hund"]
    for metric in ("bleu-lc", "bleu-intl-lc", "bleu-tok-lc", "ter"):
        perfect = 0.0 if metric == "ter" else 100.0
        assert value(hypothesis, [reference], metric) == pytest.approx(perfect)
    assert value(hypothesis, [reference], "bleu-tok") == 0


# Metrics that need no package of their own, and no download.
HERE = [name for name in METRICS if name not in ("comet", "bleu-ja", "bleu-ko", "bleu-flores200")]


@pytest.mark.parametrize("name", HERE)
def test_signatures_name_versions_references_and_steps(name):
    (score,) = score_texts(["a b c d"], [["a b c d"], ["d c b a"]], [name])
    pairs = dict(pair.split(":") for pair in score.signature.split("|"))
    assert " " not in score.signature
    assert pairs["nrefs"] == "2"
    assert pairs["version"] == sacrebleu.__version__
    if METRICS[name].tokens:
        assert pairs["nmtdeep"] == __version__
        assert (pairs["tok"], pairs["smooth"]) == ("whitespace", "none")
    assert (pairs.get("split") == "hyphen-##AT##") == (name == "bleu-compound")
    assert (pairs.get("case") == "lc") == (name.endswith("-lc") or name == "ter")


@pytest.mark.parametrize("installed", [True, False])
def test_the_tokenization_of_bleu_by_language(installed):
    expected = {
        **dict.fromkeys(["de", "en", "pt-BR", "vi", "hi", "zh-Latn-pinyin", "ja-Latn"], "13a"),
        **dict.fromkeys(["zh", "zh-Hant", "zh-TW", "zho", "cmn", "yue"], "zh"),
        **dict.fromkeys(["th", "tha", "km", "khm", "my", "mya", "lo", "lao", "th-TH"], "char"),
        **dict.fromkeys(["ja", "jpn", "ja-JP"], "ja-mecab" if installed else "char"),
        **dict.fromkeys(["ko", "kor", "ko-KR"], "ko-mecab" if installed else "char"),
    }
    found = {
        each: tokenization_for(each, lambda name: installed or not name.endswith("mecab"))
        for each in expected
    }
    assert found == expected


def test_final_metrics_fit_the_language():
    assert usual_metrics(Text(target="de")) == ["bleu", "chrf", "ter"]
    assert usual_metrics(Text(target="de", lowercase=True)) == ["bleu-lc", "chrf", "ter"]
    assert usual_metrics(Text(target="zh"), "flores200") == ["bleu-flores200", "chrf"]


def test_the_figure_of_the_best_checkpoint_names_its_metric():
    by_bleu, by_loss = Validation(beam=4, best_by="bleu"), Validation(best_by="loss")
    cased, lower = Text(target="de"), Text(target="de", lowercase=True)
    assert best_figure(by_bleu, cased, 9.514) == "9.51 BLEU (beam 4)"
    assert best_figure(by_bleu, lower, 9.514) == "9.51 BLEU-lc (beam 4)"
    assert best_figure(by_loss, lower, -2.5) == "loss 2.5000"


def test_a_missing_tokenization_is_one_line(monkeypatch):
    def missing(**_: object) -> None:
        raise RuntimeError("\nJapanese needs more.\nInstall it.")

    def ends(**_: object) -> None:
        sys.exit(1)  # as sacreBLEU's download does

    monkeypatch.setattr("nmtdeep.scoring.metrics.BLEU", missing)
    with pytest.raises(UserError, match=r"ja-mecab: .*Japanese needs more.*or choose char"):
        scorers(["bleu-ja"])
    assert tokenization_for("ja") == "char"
    monkeypatch.setattr("nmtdeep.scoring.metrics.BLEU", ends)
    with pytest.raises(UserError, match="connect to the internet"):
        scorers(["bleu-flores200"])


def test_invalid_input_is_an_error():
    with pytest.raises(UserError, match="pass --metric bleu --metric chrf"):
        score_texts(["a"], [["a"]], ["bleu,chrf"])
    with pytest.raises(UserError, match="not a language code"):
        MosesPreparation("german")


MARK = "##AT##-##AT##"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Nord-Süd-Achse", f"Nord {MARK} Süd {MARK} Achse"),
        ("a-b-c", f"a {MARK} b-c"),  # matches do not overlap
        ("a - b", "a - b"),
        ("a--b", f"a {MARK} -b"),
        ("E-Mail, T-Shirt .", f"E {MARK} Mail, T {MARK} Shirt ."),
        ("x\u00a0-y", f"x\u00a0 {MARK} y"),  # Perl's \S on bytes: U+00A0 is not a space
    ],
)
def test_compound_split_by_hand(line, expected):
    assert compound_split(line) == expected


def test_moses_preparation_by_hand():
    assert MosesPreparation("de").tokenize("Er sagt: „Ja“, z. B. 3,5 & 'so'.").split(" ") == (
        ["Er", "sagt", ":", "„", "Ja", "“", ",", "z.", "B.", "3,5", "&", "'", "so", "'", "."]
    )
    replaced = MosesPreparation("de", replace_punctuation=True)
    # replace-unicode-punctuation.perl replaces the closing German quotation mark only
    assert replaced.tokenize("„Ja“，so！") == '„ Ja " , so !'
