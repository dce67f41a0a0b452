"""Names of recipes: where the shipped ones are and which file a name means."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

from nmtdeep.config.source import parse
from nmtdeep.errors import ConfigError


def recipes_root() -> Path:
    """The folder of the shipped recipes: in the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def names() -> list[str]:
    """The names of all shipped recipes: paths below the root, without suffix; folders come last."""
    root = recipes_root()
    paths = (path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))
    # Each second part is a number, so that `v2-6` comes before `v2-12`.
    parts = {path: re.split(r"(\d+)", path) for path in paths}
    return sorted(
        parts, key=lambda path: ("/" in path, [int(p) if p.isdigit() else p for p in parts[path]])
    )


def list_recipes() -> dict[str, str]:
    """The descriptions of all shipped recipes by name; each has one line of its own."""
    root, lines = recipes_root(), {}
    for name in names():
        text = (root / f"{name}.yaml").read_text(encoding="utf-8")
        (lines[name],) = re.findall(r"^description:.*", text, flags=re.MULTILINE)
    return {name: parse(line, name).values["description"] for name, line in lines.items()}


def label(path: Path) -> str:
    """A recipe's name in messages: a shipped one's begins with `recipes/`."""
    root = recipes_root()
    return os.path.normpath(path.relative_to(root.parent) if path.is_relative_to(root) else path)


def find(name: str, folder: Path = Path()) -> Path:
    """The file that a recipe's name, or a path relative to `folder`, means."""
    path, known = folder / name, names()
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
        return recipes_root() / f"{matches[0]}.yaml"
    if matches:
        hint = f"choose {' or '.join(matches)}"
        raise ConfigError(f"{len(matches)} recipes match this name", where=name, hint=hint)
    raise ConfigError(f"no recipe {name!r}", hint=_near(name, known))


def _near(name: str, known: list[str]) -> str:
    last = {each.rpartition("/")[2]: each for each in known}
    near = get_close_matches(re.sub(r".*/|\.ya?ml$", "", name), last)
    if near:
        return f"did you mean {' or '.join(last[match] for match in near)}?"
    return "`nmtdeep recipes list` prints the names; a file's name ends in .yaml"
