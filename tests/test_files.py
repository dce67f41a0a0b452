"""Files: what a message about a place that cannot be written to names."""

import errno
import os
from pathlib import Path

import pytest

from nmtdeep.errors import UserError
from nmtdeep.files import replace_directory, replace_file


@pytest.mark.parametrize("replace", [replace_file, replace_directory])
def test_a_place_that_is_read_only_is_named_by_the_user_s_name(replace, tmp_path, monkeypatch):
    def refuse(place: object, *args: object, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(place))

    for name in ("unlink", "mkdir", "write_text"):  # as on a disk that is mounted read-only
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(UserError) as error, replace(tmp_path / "report.html") as partial:  # type: ignore[operator]
        partial.write_text("x")
    expected = f"{tmp_path / 'report.html'}: cannot be written (Read-only file system)"
    assert str(error.value).startswith(expected)
    assert ".partial" not in str(error.value)
