"""Sizes in bytes and shares, written one way."""

import pytest

from nmtdeep.units import counted, duration, percent, short, size


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (99_940_000, "99.9 MB"),
        (99_960_000, "100 MB"),
        (999_600_000, "1.0 GB"),
        (5e15, "5,000 TB"),
    ],
)
def test_sizes_are_decimal_with_a_space_before_the_unit(count, shown):
    assert size(count) == shown


def test_percentages_have_a_space_before_the_sign():
    assert percent(0.004) == "0.4 %"
    assert percent(1) == "100.0 %"
    assert percent(0.00012345, 3) == "0.012 %"


def test_a_count_has_its_noun():
    assert counted(1, "update") == "1 update"
    assert counted(0, "line") == "0 lines"
    assert counted(2000, "update") == "2,000 updates"


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0.25, "0.2"), (9.5, "9.5"), (10.4, "10"), (999, "999"), (27_900, "27.9k"), (1.3e6, "1.3M")],
)
def test_large_numbers_have_a_prefix(number, shown):
    assert short(number) == shown


def test_durations_are_hours_minutes_and_seconds():
    assert duration(3661.9) == "1:01:01"
    assert duration(100 * 3600) == "100:00:00"
    assert duration(-1) == "0:00:00"
