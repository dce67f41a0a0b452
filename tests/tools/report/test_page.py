"""Names, recipes and texts are shown on the page as they are, and cannot add code; its tables."""

import re
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nmtdeep.analysis.records import Point
from nmtdeep.config.recipe import Recipe
from nmtdeep.scoring import Score
from nmtdeep.scoring.stored import StoredScores
from nmtdeep.tools.report import tables
from nmtdeep.tools.report.history import RunHistory
from nmtdeep.tools.report.page import TableCell, html

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
    assert page.text.count(ATTACK) >= 19


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


def history(name: str, tokenizer: str = "13a", **scores: tuple[float, float]) -> RunHistory:
    """A run with BLEU and TER on the given sets."""
    stored = StoredScores(
        checkpoint="checkpoint_average",
        weights="",
        trained_to="checkpoint_9",
        averaged=[],
        scores={
            split: [
                Score("bleu", bleu, f"nrefs:1|tok:{tokenizer}"),
                Score("ter", ter, "nrefs:1|tok:tercom"),
            ]
            for split, (bleu, ter) in scores.items()
        },
    )
    return RunHistory(name, Path(name), Recipe(), [], ["cpu"], None, 1, stored, [])


def shown(cells: Iterable[TableCell]) -> list[str]:
    return [f"{cell.text}{'*' * cell.is_best}" for cell in cells]


@pytest.mark.parametrize(
    ("beam", "notes"),
    [(1, ["BLEU: beam:1"]), (5, ["BLEU (thin): beam:1", "BLEU (deep): beam:5"])],
)
def test_equal_signatures_of_validations_are_shown_once(beam, notes):
    runs = [
        replace(history(name), records=[Point(name, "valid_bleu", 1, 9.0, 0.1, 20.0, signature)])
        for name, signature in (("thin", "beam:1"), ("deep", f"beam:{beam}"))
    ]
    assert tables.overview(runs).notes == notes


def test_each_set_and_metric_has_one_row_with_the_best_run_marked():
    runs = [history("thin", valid=(30.0, 50.0), test=(31.0, 49.0)),
            history("deep", valid=(33.0, 50.0), test=(30.5, 44.0))]  # fmt: skip
    table = tables.scores(runs)
    assert list(table.headings) == ["set", "metric", "thin", "deep"]
    assert [*map(shown, table.rows)] == [
        ["valid", "BLEU ↑", "30.00", "33.00*"],
        ["valid", "TER ↓", "50.00*", "50.00*"],
        ["test", "BLEU ↑", "31.00*", "30.50"],
        ["test", "TER ↓", "49.00", "44.00*"],
    ]
    assert list(table.notes) == ["BLEU: nrefs:1|tok:13a", "TER: nrefs:1|tok:tercom"]


def test_scores_of_different_signatures_are_not_compared():
    other = history("thin", tokenizer="zh", test=(20.0, 50.0))
    table = tables.scores([other, history("deep", test=(10.0, 49.0)), history("unscored")])
    assert shown(table.rows[0]) == ["test", "BLEU ↑", "20.00", "10.00", "-"]
    assert shown(table.rows[1]) == ["test", "TER ↓", "50.00", "49.00*", "-"]
    assert table.notes[:2] == [
        "BLEU (thin, test): nrefs:1|tok:zh",
        "BLEU (deep, test): nrefs:1|tok:13a",
    ]
