"""The page in Chromium: no errors, sorted tables, pictures, phones and dark mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from reporting.browser import CHROMIUM, Tab, browser
from reporting.pages import nasty_page

from nmtdeep.tools.report.page import html

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (Debian: chromium)")

CONTRAST = """(selector => {
  const light = color => color.match(/[\\d.]+/g).slice(0, 3).map(Number).map(one => {
    const part = one / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }).reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const plain = "rgba(0, 0, 0, 0)";
  const behind = it => {
    const color = getComputedStyle(it).backgroundColor;
    return color === plain && it.parentElement ? behind(it.parentElement) : color;
  };
  return Math.min(...[...document.querySelectorAll(selector)].map(it => {
    const found = [light(getComputedStyle(it).color), light(behind(it))].sort((a, b) => b - a);
    return (found[0] + 0.05) / (found[1] + 0.05);
  }));
})"""
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(tab: Tab, scheme: str) -> None:
    tab.look(1200, scheme=scheme)
    everything = "p, h1, h2, h3, td, th, button, dd, dt, mark, a, li, code, pre, summary, .gap"
    assert tab.value(f"{CONTRAST}({everything!r})") >= 4.5  # as WCAG asks of text
    paper = tab.value("getComputedStyle(document.body).backgroundColor")
    assert (int(paper.split("(")[1].split(",")[0]) < 60) == (scheme == "dark")
    picture = tab.value("getComputedStyle(document.images[0]).filter")
    assert picture == ("invert(0.9)" if scheme == "dark" else "none")
    tab.look(1200)


def test_on_a_phone_only_tables_and_pictures_scroll_sideways(tab: Tab) -> None:
    tab.look(390)
    assert tab.value("document.documentElement.scrollWidth") == 390
    boxes = tab.value("[...document.querySelectorAll('.wide')].some(it => it.scrollWidth > 390)")
    assert boxes
    tab.look(1200)
