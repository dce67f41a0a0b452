"""Errors that the user can fix: each says what is wrong, where, and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from dataclasses import dataclass

# What to do about errors of the file system.
_CURES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room, or ask for a larger quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "choose another path",
    errno.EACCES: "correct the permissions",
    errno.EPERM: "correct the permissions",
    errno.EROFS: "choose a place that can be written to",
    errno.EBADF: "redirect the standard stream that is closed, such as < /dev/null or > /dev/null",
    errno.EIO: "check the disk for errors",
}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong; as a string, one line: line breaks in `what` and `hint` are spaces.

    Attributes:
        what: what is wrong.
        where: the file, line, option or recipe key that it is about; may be empty.
        hint: what to do about it; may be empty.
    """

    what: str
    where: str = ""
    hint: str = ""

    def __str__(self) -> str:
        what, hint = (re.sub(r"\s*\n\s*", " ", text.strip()) for text in (self.what, self.hint))
        return printable(": ".join(part for part in (self.where, what, hint) if part))


class UserError(Exception):
    """Something outside the program is wrong: a file, an option, a recipe.

    The command line prints a line for each problem, without a traceback, and exits with code 2.

    Args:
        what: what is wrong.
        where: the file, line, option or recipe key that it is about.
        hint: what to do about it.
        problems: used instead of the three above, if there are any.
    """

    def __init__(
        self,
        what: str = "",
        *,
        where: object = "",
        hint: str = "",
        problems: Iterable[Problem] = (),
    ) -> None:
        self.problems = tuple(problems) or (Problem(what, str(where), hint),)
        super().__init__(what)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def printable(text: str) -> str:
    """Text for one line: newlines, terminal codes and other invisible characters as escapes."""
    escape = "unicode_escape"
    return "".join(
        character if character.isprintable() else character.encode(escape).decode("ascii")
        for character in text
    )


class ConfigError(UserError):
    """One or more problems of a recipe, all reported at once."""


class DataError(UserError):
    """A corpus, vocabulary or text file that cannot be used."""


class CheckpointError(UserError):
    """A run directory or checkpoint that is missing, damaged, or from another model."""


class DivergenceError(UserError):
    """Loss or gradients are not finite; the last good checkpoint is kept."""


class OutOfMemoryError(UserError):
    """Memory does not hold the smallest possible batch; the last checkpoint is kept."""


def cure_of(error: BaseException | None) -> str:
    """What to do about an error of the file system; empty for another one."""
    return _CURES.get(error.errno or 0, "") if isinstance(error, OSError) else ""
