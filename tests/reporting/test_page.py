"""Names, recipes and texts are shown on the page as they are, and cannot add code."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from nmtdeep.reporting.page import html
from reporting.pages import ATTACK, CONTROLS, HEBREW, PERSIAN, nasty_page

VOID = {"meta", "img"}


class Reader(HTMLParser):
    """Elements with their attributes, and all text, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.text += data


@pytest.fixture(scope="module")
def source() -> str:
    return html(nasty_page())


@pytest.fixture(scope="module")
def page(source: str) -> Reader:
    reader = Reader()
    reader.feed(source)
    reader.close()
    assert reader.open == []
    return reader


def test_text_is_shown_and_adds_no_element_and_no_attribute(page: Reader) -> None:
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == tags.count("style") == 1
    assert "svg" not in tags
    assert all(attributes["src"].startswith("data:image/svg+xml;base64,")
               for tag, attributes in page.elements if tag == "img")  # fmt: skip
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    assert page.text.count(ATTACK) > 20


def test_the_policy_allows_only_the_script_and_the_style_of_the_page(page: Reader) -> None:
    policy = next(
        str(attributes["content"])
        for tag, attributes in page.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_right_to_left_text_and_joiners_stay_and_controls_are_escaped(source: str) -> None:
    assert HEBREW in source
    assert PERSIAN in source
    assert r"one\x00two\x1b[31mthree\u2028four\udc80five\r\nsix" in source
    assert CONTROLS not in source
    assert set(re.findall(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", source)) == {"\n"}
    source.encode("utf-8")


def test_each_sentence_has_its_own_direction(page: Reader) -> None:
    sentences = [attributes for tag, attributes in page.elements if tag == "dd"]
    assert sentences
    assert all(attributes.get("dir") == "auto" for attributes in sentences)


def test_pictures_are_complete_svg_files_without_scripts(page: Reader) -> None:
    pictures = [str(attributes["src"]) for tag, attributes in page.elements if tag == "img"]
    assert len(pictures) == 2
    for picture in pictures:
        tree = ElementTree.fromstring(base64.b64decode(picture.partition(",")[2]))
        tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
        assert "path" in tags
        assert "script" not in tags
