"""Marks in a translation where it differs from its reference; no text is lost."""

from hypothesis import given
from hypothesis import strategies as st

from nmtdeep.tools.report.differences import marked

TEXT = st.text(st.sampled_from("ab ,.\t\u3042\u4e2d\u0301\u200d\u05d0\U0001f469"), max_size=30)


def kinds(translation: str, reference: str) -> list[tuple[str, str]]:
    return [(piece.kind, piece.text) for piece in marked(translation, reference)]


def test_different_words_are_marked_and_missing_ones_are_gaps():
    assert kinds("A dog sat on mat.", "A cat sat on the mat.") == [
        *(("same", "A "), ("other", "dog"), ("same", " "), ("same", "sat on ")),
        *(("gap", "the"), ("same", "mat.")),
    ]
    assert kinds("我喜欢猫", "我喜欢狗") == [("same", "我喜欢"), ("other", "猫")]


@given(TEXT, TEXT)
def test_the_pieces_are_the_translation(translation, reference):
    pieces = marked(translation, reference)
    assert "".join(piece.text for piece in pieces if piece.kind != "gap") == translation
