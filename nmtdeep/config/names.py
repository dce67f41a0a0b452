"""Names of recipes: where the shipped ones lie and which file a name means."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from nmtdeep.errors import ConfigError

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class RecipeFile:
    """A recipe on disk, and how messages call it."""

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


def recipes_root() -> Path:
    """The folder of the shipped recipes: in the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def names() -> list[str]:
    """The names of all shipped recipes: paths below the root, without suffix; folders come last."""
    root = recipes_root()
    found = (path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))
    return sorted(found, key=lambda name: ("/" in name, _natural(name)))


def find(name_or_path: str) -> RecipeFile:
    """The file that a recipe name or a path means."""
    path = Path(name_or_path)
    if name_or_path.endswith(_SUFFIXES):
        if not _exists(path):
            raise ConfigError(f"{name_or_path}: no such file{_near(name_or_path)}")
        return RecipeFile(path, name_or_path)
    known = names()
    matches = [name for name in known if name == name_or_path] or [
        name for name in known if name.rpartition("/")[2] == name_or_path
    ]
    if len(matches) == 1:
        return RecipeFile(recipes_root() / f"{matches[0]}.yaml", f"recipes/{matches[0]}.yaml")
    if matches:
        raise ConfigError(
            f"{name_or_path}: {len(matches)} recipes have this name: say {' or '.join(matches)}"
        )
    inside = [name for name in known if name.startswith(f"{name_or_path.rstrip('/')}/")]
    if inside:
        raise ConfigError(f"{name_or_path}: a folder of recipes: say one of {', '.join(inside)}")
    if name_or_path and _exists(path):
        if path.is_dir():
            raise ConfigError(f"{name_or_path}: is a directory: name a recipe or a recipe file")
        return RecipeFile(path, name_or_path)
    raise ConfigError(f"no recipe {name_or_path!r}{_near(name_or_path)}")


def _natural(name: str) -> list[tuple[str, int]]:
    """Sorts `v2-6` before `v2-12`."""
    return [(word, int(number or 0)) for word, number in re.findall(r"([^0-9]*)([0-9]*)", name)]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for the file system, for one
        return False


def _near(wanted: str) -> str:
    stem = wanted.removesuffix(".yml").removesuffix(".yaml")
    known = names()
    by_tail = {name.rpartition("/")[2]: name for name in known}
    close = get_close_matches(stem, known, n=3, cutoff=0.6)
    tails = get_close_matches(stem.rpartition("/")[2], by_tail, n=3, cutoff=0.6)
    found = list(dict.fromkeys([*close, *(by_tail[tail] for tail in tails)]))[:3]
    if found:
        return f" (did you mean {' or '.join(found)}?)"
    return ": `nmtdeep recipes list` prints the names; a file's name ends in .yaml"
