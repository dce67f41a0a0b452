"""Names, recipes and texts are shown on the page as they are, and cannot add code; its tables."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtdeep.config.recipe import Recipe
from nmtdeep.scoring import Score
from nmtdeep.scoring.stored import StoredScores
from nmtdeep.tools.report import tables
from nmtdeep.tools.report.differences import marked
from nmtdeep.tools.report.history import RunHistory
from nmtdeep.tools.report.page import html

from .pages import ATTACK, CONTROLS, HEBREW, PERSIAN, nasty_page


class Reader(HTMLParser):
    """Elements with their attributes, and all text, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def source():
    return html(nasty_page())


@pytest.fixture(scope="module")
def page(source):
    reader = Reader()
    reader.feed(source)
    reader.close()
    return reader


def test_text_is_shown_and_adds_no_element_and_no_attribute(page):
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == tags.count("style") == 1
    assert "svg" not in tags
    assert all(attributes["src"].startswith("data:image/svg+xml;base64,")
               for tag, attributes in page.elements if tag == "img")  # fmt: skip
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    assert page.text.count(ATTACK) > 20


def test_the_policy_allows_only_the_script_and_the_style_of_the_page(page):
    policy = next(
        str(attributes["content"])
        for tag, attributes in page.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_right_to_left_text_and_joiners_stay_and_controls_are_escaped(source):
    assert HEBREW in source
    assert PERSIAN in source
    assert r"one\x00two\x1b[31mthree\u2028four\udc80five\r\nsix" in source
    assert CONTROLS not in source
    assert set(re.findall(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", source)) == {"\n"}
    source.encode("utf-8")


def history(name: str, **scores: tuple[float, float]) -> RunHistory:
    """A run with BLEU and TER on the given sets."""
    stored = StoredScores(
        checkpoint="checkpoint_average",
        weights="",
        trained_to="checkpoint_9",
        averaged=[],
        scores={
            split: [
                Score("bleu", bleu, "nrefs:1|tok:13a"),
                Score("ter", ter, "nrefs:1|tok:tercom"),
            ]
            for split, (bleu, ter) in scores.items()
        },
    )
    return RunHistory(name, Path(name), Recipe(), [], ["cpu"], 1, stored, [])


def test_each_set_and_metric_has_one_row_with_the_best_run_marked():
    runs = [history("thin", valid=(30.0, 50.0), test=(31.0, 49.0)),
            history("deep", valid=(33.0, 50.0), test=(30.5, 44.0))]  # fmt: skip
    again = {"thin": [Score("bleu", 31.001, "nrefs:1|tok:13a")]}
    table = tables.scores(runs, "test", again)
    assert list(table.headings) == ["set", "metric", "thin", "deep"]
    assert [[f"{cell.text}{'*' * cell.is_best}" for cell in row] for row in table.rows] == [
        ["valid", "BLEU ↑", "30.00", "33.00*"],
        ["valid", "TER ↓", "50.00*", "50.00*"],
        ["test", "BLEU ↑", "31.00*", "30.50"],
        ["test", "TER ↓", "49.00", "44.00*"],
    ]
    assert list(table.notes) == ["BLEU: nrefs:1|tok:13a", "TER: nrefs:1|tok:tercom"]


def test_scores_of_different_signatures_are_not_compared():
    again = {"thin": [Score("bleu", 20.0, "nrefs:2|tok:13a")]}
    table = tables.scores([history("thin"), history("deep", test=(10.0, 49.0))], "test", again)
    assert [cell.is_best for cell in table.rows[0]] == [False] * 4
    assert table.notes[0] == "BLEU (thin, test): nrefs:2|tok:13a"
    assert table.notes[1] == "BLEU (deep, test): nrefs:1|tok:13a"
    assert [cell.text for cell in table.rows[1]] == ["test", "TER ↓", "-", "49.00"]


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
