"""The page in Chromium: no errors, sorted tables, pictures, phones and dark mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nmtdeep.reporting.page import html
from reporting.browser import CHROMIUM, Tab, browser
from reporting.pages import nasty_page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (Debian: chromium)")

COLUMN = "[...document.querySelector('#scores tbody').rows].map(row => row.cells[%d].textContent)"
CLICK = "document.querySelectorAll('#scores thead button')[%d].click()"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    folder = tmp_path_factory.mktemp("browser")
    (folder / "page.html").write_text(html(nasty_page()), encoding="utf-8")
    with browser(folder / "profile") as tab:
        tab.look(1200)
        tab.open(folder / "page.html")
        yield tab


def test_it_opens_without_errors_and_requests_nothing(tab: Tab) -> None:
    assert tab.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in tab.requests)
    assert str(tab.value("document.title")).endswith("nmtdeep report")


def test_tables_sort_numbers_as_numbers_and_text_as_text(tab: Tab) -> None:
    tab.value(CLICK % 1)
    assert tab.value(COLUMN % 1) == ["-3.5", "★ 9", "10", "-"]
    tab.value(CLICK % 1)
    assert tab.value(COLUMN % 1) == ["10", "★ 9", "-3.5", "-"]
    assert tab.value("document.querySelectorAll('#scores th')[1].ariaSort") == "descending"
    tab.value(CLICK % 2)
    assert tab.value(COLUMN % 2)[:3] == ["a", "b 2", "b 10"]


def test_pictures_are_drawn(tab: Tab) -> None:
    tab.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    sizes = tab.value(
        "[...document.images].map(it => [it.naturalWidth, it.getBoundingClientRect().width])"
    )
    assert len(sizes) == 2
    assert all(natural > 300 and shown > 300 for natural, shown in sizes)


def test_dark_mode_has_dark_paper_and_light_lines_in_pictures(tab: Tab) -> None:
    tab.look(1200, scheme="dark")
    paper = tab.value("getComputedStyle(document.body).backgroundColor")
    assert int(paper.split("(")[1].split(",")[0]) < 60
    assert tab.value("getComputedStyle(document.images[0]).filter") == "invert(0.9)"
    tab.look(1200)


def test_on_a_phone_only_tables_and_pictures_scroll_sideways(tab: Tab) -> None:
    tab.look(390)
    assert tab.value("document.documentElement.scrollWidth") == 390
    boxes = tab.value("[...document.querySelectorAll('.wide')].some(it => it.scrollWidth > 390)")
    assert boxes
    tab.look(1200)
