"""Names of recipes: where the shipped ones are and which file a name means."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from nmtdeep.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class RecipeFile:
    """A recipe on disk, and its name in messages."""

    path: Path
    label: str

    @property
    def identity(self) -> str:
        """Equal for two ways of writing one file's path."""
        return os.path.realpath(self.path)

    def parent(self, name: str) -> RecipeFile:
        """The recipe that this one extends: a path relative to it, or a name."""
        if name.endswith(_SUFFIXES):
            label = os.path.normpath(PurePosixPath(self.label).parent / name)
            return RecipeFile(self.path.parent / name, label)
        return find(name)


def recipes_root(package: Path = _PACKAGE) -> Path:
    """The folder of the shipped recipes: in the installed package, or beside it in a checkout."""
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def names() -> list[str]:
    """The names of all shipped recipes: paths below the root, without suffix; folders come last."""
    root = recipes_root()
    paths = (path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))
    return sorted(paths, key=lambda name: ("/" in name, _natural(name)))


def find(name: str) -> RecipeFile:
    """The file that a recipe's name, or a path, means."""
    path, known = Path(name), names()
    if name.endswith(_SUFFIXES):
        if not _exists(path):
            raise ConfigError("no such file", where=name, hint=_near(name, known))
        return RecipeFile(path, name)
    matches = [each for each in known if each == name]
    matches = matches or [each for each in known if each.rpartition("/")[2] == name]
    if len(matches) == 1:
        return RecipeFile(recipes_root() / f"{matches[0]}.yaml", f"recipes/{matches[0]}.yaml")
    matches = matches or [each for each in known if each.startswith(f"{name.rstrip('/')}/")]
    if matches:
        hint = f"choose {' or '.join(matches)}"
        raise ConfigError(f"{len(matches)} recipes match this name", where=name, hint=hint)
    if not name or not _exists(path):
        raise ConfigError(f"no recipe {name!r}", hint=_near(name, known))
    if path.is_dir():
        raise ConfigError("is a directory", where=name, hint="name a recipe or a recipe file")
    return RecipeFile(path, name)


def _natural(name: str) -> list[tuple[str, int]]:
    """Sorts `v2-6` before `v2-12`."""
    return [(word, int(number or 0)) for word, number in re.findall(r"([^0-9]*)([0-9]*)", name)]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # such as a name that is too long for the file system
        return False


def _near(name: str, known: list[str]) -> str:
    stem = name.removesuffix(".yml").removesuffix(".yaml")
    by_tail = {each.rpartition("/")[2]: each for each in known}
    tails = get_close_matches(stem.rpartition("/")[2], by_tail, n=3, cutoff=0.6)
    near = [*get_close_matches(stem, known, n=3, cutoff=0.6), *(by_tail[tail] for tail in tails)]
    if near:
        return f"did you mean {' or '.join(list(dict.fromkeys(near))[:3])}?"
    return "`nmtdeep recipes list` prints the names; a file's name ends in .yaml"
