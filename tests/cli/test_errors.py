"""Exceptions that become one line, and faults of the program."""

import errno

import pytest

from nmtdeep.cli.errors import as_user_error
from nmtdeep.errors import UserError


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("could not create a primitive")])
def test_out_of_memory_is_one_line(error):
    assert str(as_user_error(error)).startswith("out of memory: free some")


def test_an_error_of_a_file_names_it_with_a_hint():
    error = as_user_error(PermissionError(errno.EACCES, "Permission denied", "run"))
    expected = "run: Permission denied: correct the permissions, then run the same command again"
    assert str(error) == expected


def test_a_text_of_several_lines_is_one_line_without_escapes():
    error = UserError("Choose from:\n\ta,\n\tb", where="na\nme", hint="try\n  this")
    assert str(error) == r"na\nme: Choose from: a, b: try this"


def test_another_error_is_not_hidden():
    assert as_user_error(RuntimeError("shapes do not match")) is None
