"""The documentation is correct: its links exist, its commands parse, its names exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pages import FENCE, PAGES, ROOT, Command, commands_in_blocks, name_of

import nmtdeep
from nmtdeep.cli.main import app
from nmtdeep.config.load import load_recipe

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MACHINE_PATH = re.compile(r"(?<![\w.~$}:>-])/(?:home|root|work|opt|mnt|srv|Users|tmp|usr)/\w")


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def slugs(text: str) -> set[str]:
    """Anchors that a heading gets on the usual forges."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands_in_lines(page: Path) -> Iterator[Command]:
    """Commands between single backquotes, which may be incomplete."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for shown in re.findall(r"`nmtdeep ([^`]+)`", text):
        yield Command(name_of(page), tuple(re.sub(r"[\[\]|]", " ", shown).split()))


def find(words: tuple[str, ...]) -> tuple[Any, list[str]]:
    """The command object that the first words name, and the words behind them."""
    command, rest = typer.main.get_command(app), list(words)
    while rest and hasattr(command, "commands") and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    return command, rest


BLOCK_COMMANDS = [command for page in PAGES for command in commands_in_blocks(page)]
LINE_COMMANDS = [command for page in PAGES for command in commands_in_lines(page)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists():
            broken.append(f"{target}: no such file")
        elif anchor and anchor not in slugs(path.read_text(encoding="utf-8")):
            broken.append(f"{target}: no such heading")
        elif not path.is_relative_to(ROOT):
            broken.append(f"{target}: outside the repository")
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_names_a_path_of_a_machine(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    paths = [
        f"{number}: {line}" for number, line in enumerate(lines, 1) if MACHINE_PATH.search(line)
    ]
    assert not paths


@pytest.mark.parametrize("command", BLOCK_COMMANDS, ids=str)
def test_a_command_in_a_block_parses(command: Command) -> None:
    parser, rest = find(command.words)
    if {"-h", "--help", "--version", "--install-completion"} & set(rest):
        return
    assert not hasattr(parser, "commands"), "not a command"
    context = parser.make_context(parser.name, rest)
    recipe = context.params.get("recipe")
    if recipe is not None and "=" not in recipe and not recipe.endswith((".yaml", ".yml")):
        load_recipe(recipe, context.params.get("overrides") or ())


@pytest.mark.parametrize("command", LINE_COMMANDS, ids=str)
def test_a_command_in_a_line_names_what_exists(command: Command) -> None:
    parser, rest = find(command.words)
    known = {name for parameter in parser.params for name in parameter.opts}
    known |= {"-h", "--help"}
    options = {
        word.partition("=")[0].rstrip(".,") for word in rest if re.match(r"--?[a-zA-Z]", word)
    }
    assert options <= known
    assert not hasattr(parser, "commands") or options or not rest or rest[0].isupper()


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == nmtdeep.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?{re.escape(nmtdeep.__version__)}\b", changes, re.M)


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = chain(*project["optional-dependencies"].values())
    packages = {re.split(r"[<>=~! ]", line)[0] for line in [*project["dependencies"], *extras]}
    text = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    assert packages <= set(re.findall(r"^\| `([\w.-]+)", text, re.M))


def test_the_pages_have_one_order_and_one_grouping() -> None:
    """In index.md and in the navigation of the site; the index has their titles."""
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    of_site = re.findall(r"^  - ([\w ]+):$|^      - (?:\w+: )?([\w/-]+\.md)$", site, re.M)
    of_index = re.findall(r"^([\w ]+):$|\[[^\]]+\]\((?:\.\./)?([\w/-]+\.md)\)", index, re.M)
    assert [(group, page.lower()) for group, page in of_index] == of_site
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages <= {page for _, page in of_index}
    for title, page in re.findall(r"^- \[([^\]]+)\]\(([\w-]+\.md)\)", index, re.M):
        assert (ROOT / "docs" / page).read_text(encoding="utf-8").startswith(f"# {title}")
