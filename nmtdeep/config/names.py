"""Names of recipes: where they are and which file a name means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from nmtdeep.config.source import parse
from nmtdeep.config.spelling import similar
from nmtdeep.config.variant import GROUP
from nmtdeep.errors import ConfigError


@cache
def recipe_files() -> dict[str, Path]:
    """The shipped recipes and those of packages with variants, by name; folders come last.

    A name is the path below the root, without suffix; below the folder `recipes` of a package, it
    begins with the package's name.
    """
    files = {
        (prefix / path.relative_to(root)).with_suffix("").as_posix(): path
        for prefix, root in roots()
        for path in root.rglob("*.yaml")
    }

    def order(name: str) -> tuple[bool, list[int | str]]:
        """Numbers count as numbers, so that `v2-6` comes before `v2-12`."""
        parts = re.split(r"(\d+)", name)
        return "/" in name, [int(part) if part.isdigit() else part for part in parts]

    return {name: files[name] for name in sorted(files, key=order)}


@cache
def roots() -> list[tuple[Path, Path]]:
    """Folders of recipes, each with the name of its package, which is found and not imported."""
    nmtdeep = Path(__file__).resolve().parents[1]
    installed = nmtdeep / "recipes"
    # In a checkout they are next to the package.
    found = [(Path(), installed if installed.is_dir() else nmtdeep.parent / "recipes")]
    for package in {point.module.partition(".")[0] for point in entry_points(group=GROUP)}:
        spec = find_spec(package)
        folders = (spec and spec.submodule_search_locations) or ()
        found += [(Path(package), Path(folder) / "recipes") for folder in folders]
    return found


def list_recipes(words: Sequence[str] = ()) -> dict[str, str]:
    """The descriptions of recipes by name; each has one line of its own.

    Args:
        words: only recipes with each of them in the name, in any case; if there are none, those
            with the phrase, or at last with each of them, in description or reference.
    """
    described, about = {}, {}
    for name, path in recipe_files().items():
        text = path.read_text(encoding="utf-8")
        about[name] = "\n".join(re.findall(r"^(?:desc|refer).*(?:\n +.*)*", text, re.MULTILINE))
        line = re.search(r"^description:.*", text, re.MULTILINE)
        described[name] = parse(line[0], name).values["description"] if line else ""
    found = [name for name in about if all(word.lower() in name.lower() for word in words)]
    for tried in ([" ".join(words)], words):  # 1 is in Table 1, and not in Table 12 or in 0.1
        every = [re.compile(rf"(?<![\w.]){re.escape(word)}(?!\d)", re.IGNORECASE) for word in tried]
        found = found or [n for n, text in about.items() if all(p.search(text) for p in every)]
    return {name: described[name] for name in found}


def label(path: Path) -> str:
    """A recipe's file in messages: a shipped one's begins with `recipes/`, or with its package."""
    for prefix, root in roots():
        if path.is_relative_to(root):
            return str(prefix / "recipes" / path.relative_to(root))
    return os.path.normpath(path)


def find(name: str, folder: Path = Path()) -> Path:
    """The file that a recipe's name, or a path relative to `folder`, means."""
    path, known = folder / name, recipe_files()
    if name.endswith((".yaml", ".yml")):
        if not os.path.isfile(path):  # noqa: PTH113 -- False also for a name that is too long
            raise ConfigError("no such file", where=label(path), hint=_near(name, known))
        return path
    matches = (
        [each for each in known if each == name]
        or [each for each in known if each.rpartition("/")[2] == name]
        or [each for each in known if each.startswith(f"{name.rstrip('/')}/")]
    )
    if len(matches) == 1:
        return known[matches[0]]
    if matches:
        hint = f"choose {' or '.join(matches)}"
        raise ConfigError(f"{len(matches)} recipes match this name", where=name, hint=hint)
    raise ConfigError(f"no recipe {name!r}", hint=_near(name, known))


def _near(name: str, known: Iterable[str]) -> str:
    last = {each.rpartition("/")[2]: each for each in known}
    near = similar(re.sub(r".*/|\.ya?ml$", "", name), last, most=3)
    if near:
        return f"did you mean {' or '.join(last[match] for match in near)}?"
    return "`nmtdeep recipes list` prints the names; a file's name ends in .yaml"
