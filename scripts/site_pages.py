"""Hooks of `mkdocs build`: pages from the root of the repository, and links that fit the site.

A page links to others as the repository's host shows them. Here a link to a page or an image of the
site leads there, and one to any other file of the repository becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"(!?)\[([^\[\]]+)\]\(([^()\s]+)\)")  # an image has an exclamation mark


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from the root."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Make the links of one page fit."""
    roots = {page: name for name, page in PAGES.items()}
    own = page.file.src_uri
    source = roots.get(own, f"docs/{own}")
    folders = posixpath.dirname(source), posixpath.dirname(own)
    return LINK.sub(partial(_fitting, folders, files), markdown)


def _fitting(folders: tuple[str, str], files: Any, link: re.Match[str]) -> str:
    """The link of a page, whose folder in the repository and in the site are `folders`."""
    folder, own = folders
    mark, text, target = link.groups()
    path, _, place = target.partition("#")
    if not path or ":" in path:
        return link.group()
    path = posixpath.normpath(posixpath.join(folder, path))
    page = PAGES.get(path, path.removeprefix("docs/"))
    if files.get_file_from_path(page) is None:
        return text
    return f"{mark}[{text}]({posixpath.relpath(page, own or '.')}{'#' if place else ''}{place})"
