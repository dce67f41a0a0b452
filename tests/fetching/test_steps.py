"""Each step against what the published scripts do, written out by hand."""

from __future__ import annotations

from nmtdeep.config.text import Clean
from nmtdeep.fetching.catalog import Step
from nmtdeep.fetching.steps import Casing, Prepare


def one(text: str, *steps: Step, casing: Casing | None = None) -> str:
    prepare = Prepare(("en", "de"), steps, casings=(casing, None))
    [(source, _)] = prepare([(text.encode(), b"x")]).pairs
    return source


def test_characters_that_do_not_print_become_spaces() -> None:
    # Perl's \p{C}: controls, formats (soft hyphen, zero-width joiner), private use.
    assert one("a\x00b\tc\u00add\u200de\ue000f", "non_printing") == "a b c d e f"
    assert one("no\u00a0break \u2028 émoji 🙂", "non_printing") == "no\u00a0break \u2028 émoji 🙂"


def test_right_quotes_become_apostrophes_and_others_stay() -> None:
    assert one("it’s “so” ‘x’", "quotes") == "it's “so” ‘x'"


def test_escapes_of_moses_are_undone_once() -> None:
    text = "&quot; it &apos;s &#91; x &#93; &lt; &gt; &#124; R &amp; D &amp;lt; &eacute;"
    assert one(text, "unescape") == "\" it 's [ x ] < > | R & D &lt; &eacute;"


def test_hyphens_are_split_where_the_publisher_split_them() -> None:
    assert one("well-known, it's", "tokenize") == "well-known , it 's"
    assert one("well-known, it's", "tokenize_hyphens") == "well @-@ known , it 's"


def test_truecasing_gives_first_words_their_commonest_spelling() -> None:
    casing = Casing.of(["the cat sees the Dog .", "Paris the US", "The us us US US"])
    # first: the (2 of 3); known inside: stays; unknown inside: the commonest; behind a stop: first
    text = "The Dog THE Cat : The cat ( unseen Unseen"
    assert one(text, "truecase", casing=casing) == "the Dog the cat : the cat ( unseen Unseen"
    assert one('" The US', "truecase", casing=casing) == '" the US'


def test_cleaning_counts_words_and_says_why() -> None:
    clean = Clean(min_length=1, max_length=4, max_ratio=1.5)
    chunk = [(b"a b c", b"a b"), (b"a b c d", b"a b"), (b"a b c d e", b"a b c d"), (b"", b"a")]
    result = Prepare(("en", "de"), (), clean)(chunk)
    assert result.pairs == [("a b c", "a b")]
    assert result.dropped == {
        "one side more than 1.5 times the other": 1,
        "source longer than 4 words": 1,
        "source is empty": 1,
    }


def test_what_is_not_utf8_is_left_out_and_counted() -> None:
    result = Prepare(("en", "de"), ("non_printing",))([(b"caf\xe9", b"x"), ("é".encode(), b"y")])
    assert result.pairs == [("é", "y")]
    assert result.dropped == {"not valid UTF-8": 1}


def test_a_pair_of_nothing_is_left_out_and_half_a_pair_stays_for_preprocess() -> None:
    result = Prepare(("en", "de"), ())([(b"", b""), (b"a", b"")])
    assert (result.pairs, result.dropped) == ([("a", "")], {"both sides are empty": 1})
