"""Each step against what the published scripts do, written out by hand."""

from collections import Counter

from nmtdeep.config.text import Clean
from nmtdeep.preprocessing.transforms import Pair
from nmtdeep.tools.fetch.catalog import Output, Step
from nmtdeep.tools.fetch.readers import RawPair
from nmtdeep.tools.fetch.steps import Casing, prepare


def prepared(
    pairs: list[RawPair], output: Output, casing: Casing | None = None
) -> tuple[list[Pair], Counter[str]]:
    dropped: Counter[str] = Counter()
    return list(prepare(pairs, output, ("en", "de"), (casing, None), dropped)), dropped


def line(text: str, *steps: Step, casing: Casing | None = None) -> str:
    [(source, _)], _ = prepared([(text.encode(), b"x")], Output(parts=(), steps=steps), casing)
    return source


def test_characters_that_do_not_print_become_spaces():
    # Perl's \p{C}: controls, formats (soft hyphen, zero-width joiner), private use.
    assert line("a\x00b\tc\u00add\u200de\ue000f", "non_printing") == "a b c d e f"
    assert line("no\u00a0break \u2028 émoji 🙂", "non_printing") == "no\u00a0break \u2028 émoji 🙂"


def test_right_quotes_become_apostrophes_and_others_stay():
    assert line("it’s “so” ‘x’", "quotes") == "it's “so” ‘x'"


def test_escapes_of_moses_are_undone_once():
    text = "&quot; it &apos;s &#91; x &#93; &lt; &gt; &#124; R &amp; D &amp;lt; &eacute;"
    assert line(text, "unescape") == "\" it 's [ x ] < > | R & D &lt; &eacute;"


def test_hyphens_are_split_where_the_publisher_split_them():
    assert line("well-known, it's", "tokenize") == "well-known , it 's"
    assert line("well-known, it's", "tokenize_hyphens") == "well @-@ known , it 's"


def test_truecasing_gives_first_words_their_commonest_spelling():
    casing = Casing.of(["the cat sees the Dog .", "Paris the US", "The us us US US"])
    # first: the (2 of 3); known inside: stays; unknown inside: the commonest; behind a stop: first
    text = "The Dog THE Cat : The cat ( unseen Unseen"
    assert line(text, "truecase", casing=casing) == "the Dog the cat : the cat ( unseen Unseen"
    assert line('" The US', "truecase", casing=casing) == '" the US'


def test_cleaning_counts_words_and_reports_the_reason():
    clean = Clean(min_length=1, max_length=4, max_ratio=1.5)
    raw = [(b"a b c", b"a b"), (b"a b c d", b"a b"), (b"a b c d e", b"a b c d"), (b"", b"a")]
    pairs, dropped = prepared(raw, Output(parts=(), clean=clean))
    assert pairs == [("a b c", "a b")]
    assert dropped == {
        "one side more than 1.5 times the other": 1,
        "source longer than 4 words": 1,
        "source is empty": 1,
    }
