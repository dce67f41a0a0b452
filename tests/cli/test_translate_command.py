"""How many processes translate, if nobody says."""

from __future__ import annotations

import pytest

from nmtdeep.cli.translate import _processes
from nmtdeep.decoding.opening import options_of
from nmtdeep.decoding.streams import BUFFER
from nmtdeep.errors import UserError


@pytest.mark.parametrize(
    ("asked", "threads", "lines", "expected"),
    [
        (None, None, BUFFER + 1, 3),
        (None, None, BUFFER, 1),
        (None, None, 0, 1),  # a pipe
        (None, 2, BUFFER + 1, 1),
        (2, None, 0, 2),
        (1, 2, BUFFER + 1, 1),
    ],
)
def test_one_process_per_core_for_a_long_file(
    asked: int | None,
    threads: int | None,
    lines: int,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nmtdeep.devices.cores", lambda: 3)
    assert _processes(asked, threads=threads, device="cpu", lines=lines) == expected


def test_threads_and_several_processes_do_not_go_together() -> None:
    with pytest.raises(UserError, match="leave out --threads"):
        options_of(processes=2, threads=1)
