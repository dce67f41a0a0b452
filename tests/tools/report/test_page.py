"""Names, recipes and texts are shown on the page as they are, and cannot add code."""

import re
from html.parser import HTMLParser

import pytest

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
