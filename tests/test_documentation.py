"""The documentation is correct: its links exist, its commands parse, its names exist."""

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import typer.main
from pages import FENCE, PAGES, ROOT, Command, commands_in_blocks, name_of
from shipped import loaded

import nmtdeep
from nmtdeep.cli.main import app

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


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
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and hasattr(command, "commands") and rest[0] in command.list_commands(None):
        command = command.get_command(None, rest.pop(0))
    return command, rest


def problem_of_link(page: Path, target: str) -> str | None:
    file, _, anchor = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    if not path.exists():
        return "no such file"
    if anchor and anchor not in slugs(path.read_text(encoding="utf-8")):
        return "no such heading"
    return None if path.is_relative_to(ROOT) else "outside the repository"


def test_links_lead_somewhere():
    broken = [
        f"{page}: {target}: {problem}"
        for page in PAGES
        for target in LINK.findall(without_code(page.read_text(encoding="utf-8")))
        if not re.match(r"[a-z]+:", target) and (problem := problem_of_link(page, target))
    ]
    assert not broken


def failing(check: Callable[[Command], None], commands: Sequence[Command]) -> list[str]:
    """The commands that do not pass, with their problems."""
    problems = []
    for command in commands:
        try:
            check(command)
        except Exception as error:  # a click exception's text is its message
            problems.append(f"{command}: {error!r} {error}")
    return problems


def test_commands_in_blocks_parse():
    assert not failing(parse, [command for page in PAGES for command in commands_in_blocks(page)])


def parse(command: Command) -> None:
    parser, rest = find(command.words)
    if {"-h", "--help", "--version", "--install-completion"} & set(rest):
        return
    assert not hasattr(parser, "commands"), "not a command"
    context = parser.make_context(parser.name, rest)
    recipe = None if context.params.get("merge") else context.params.get("recipe")
    if recipe is not None and "=" not in recipe and not recipe.endswith((".yaml", ".yml")):
        loaded(recipe, *filter(None, [tuple(context.params.get("overrides") or ())]))


def test_commands_in_lines_name_what_exists():
    shown = [command for page in PAGES for command in commands_in_lines(page)]
    assert not failing(names_what_exists, shown)


def names_what_exists(command: Command) -> None:
    parser, rest = find(command.words)
    known = {name for parameter in parser.params for name in parameter.opts}
    known |= {"-h", "--help"}
    options = {
        word.partition("=")[0].rstrip(".,") for word in rest if re.match(r"--?[a-zA-Z]", word)
    }
    assert options <= known
    assert not hasattr(parser, "commands") or options or not rest or rest[0].isupper()


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == nmtdeep.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?{re.escape(nmtdeep.__version__)}\b", changes, re.M)


def test_every_dependency_has_its_reason():
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = content["project"]
    extras = chain(*project["optional-dependencies"].values())
    packages = {re.split(r"[<>=~! ]", line)[0] for line in [*project["dependencies"], *extras]}
    assert packages == content["tool"]["nmtdeep"]["reasons"].keys()


def test_the_pages_have_one_order_and_one_grouping():
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
