"""Sizes, shares, counts and durations as every screen, log and page shows them."""

from __future__ import annotations

KWH = 3.6e6  # joules
UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Bytes in decimal units, with one digit below 100: `1.9 GB`, `409.6 MB` is `410 MB`."""
    unit = 0
    while round(count) >= 1000 and unit < len(UNITS) - 1:
        count /= 1000
        unit += 1
    digits = 1 if unit and round(count, 1) < 100 else 0
    return f"{count:,.{digits}f} {UNITS[unit]}"


def percent(share: float, digits: int = 1) -> str:
    """A share between 0 and 1 as a percentage: `0.4 %`."""
    return f"{100 * share:.{digits}f} %"


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 update`, `2,000 updates`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def short(number: float) -> str:
    """A large number with a unit prefix: `9.5`, `27.9k`, `1.3M`."""
    for unit, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:.1f}{prefix}"
    return f"{number:.1f}" if number < 10 else f"{number:.0f}"


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    whole = int(max(seconds, 0))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def kwh(joules: float) -> str:
    """Energy with three digits: `0.0125 kWh`, `8.3 kWh`."""
    return f"{joules / KWH:.3g} kWh"
