"""Errors that are the user's to mend: one clear line each, ending with the cure."""

from __future__ import annotations


class UserError(Exception):
    """Something outside the program is wrong: a file, an option, a recipe.

    The message says what is wrong, where, and what to do: a line for each of `problems`. The
    command line prints it without a traceback and leaves with exit code 2.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)

    def __str__(self) -> str:
        return "\n".join(map(printable, self.args))


def printable(text: str) -> str:
    """Text for one line: newlines, terminal codes and whatever else does not show as escapes."""
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class ConfigError(UserError):
    """One or more problems of a recipe, one per line, all reported at once."""


class DataError(UserError):
    """A corpus, vocabulary or text file that cannot be used as it is."""


class CheckpointError(UserError):
    """A run directory or checkpoint that is missing, half written, truncated or foreign."""


class DivergenceError(UserError):
    """Training produced numbers that cannot be trained on; the last good checkpoint stays.

    Args:
        message: one line.
        report: lines for the log: the state before, the layers that are worst, all that may help.
    """

    def __init__(self, message: str, report: str = "") -> None:
        super().__init__(message)
        self.report = report


class NoRoomError(UserError):
    """Memory does not suffice for a batch; the last checkpoint stays."""
