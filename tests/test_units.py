"""Numbers on a screen: sizes, shares, counts, durations, written one way."""

import pytest

from nmtdeep.units import counted, duration, percent, short, size


@pytest.mark.parametrize(
    ("write", "number", "shown"),
    [
        (size, 999, "999 bytes"),
        (size, 1000, "1.0 kB"),
        (size, 99_960_000, "100 MB"),
        (size, 999_600_000, "1.0 GB"),
        (percent, 0.004, "0.4 %"),
        (percent, 1, "100.0 %"),
        (lambda number: counted(number, "update"), 1, "1 update"),
        (lambda number: counted(number, "update"), 2000, "2,000 updates"),
        (short, 0.25, "0.2"),
        (short, 10.4, "10"),
        (short, 27_900, "27.9k"),
        (duration, 3661.9, "1:01:01"),
        (duration, 100 * 3600, "100:00:00"),
        (duration, -1, "0:00:00"),
    ],
)
def test_a_number_is_written_one_way(write, number, shown):
    assert write(number) == shown
