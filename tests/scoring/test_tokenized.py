"""Compounds are split, and words counted, as the papers' scripts do; expected lines by hand."""

import pytest

from nmtdeep.scoring.tokenized import MosesPreparation, compound_split

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
