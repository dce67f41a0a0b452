"""Problems of a text's state, and the tables of all splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from nmtdeep.doctor.texts import UNUSUAL, SplitState
from nmtdeep.errors import Problem
from nmtdeep.tables import table
from nmtdeep.units import percent

# Largest shares of pairs or subwords that are not a problem.
BLANK, IDENTICAL, UNUSUAL_PAIRS, UNKNOWN, REPEATED = 0.01, 0.10, 0.05, 0.01, 0.01


def tables(splits: Mapping[str, SplitState], languages: tuple[str, str]) -> list[Table]:
    """A row per split: lines and lengths; then suspicious pairs, if there are any."""
    source, target = languages
    headings = [f"{source} lines", f"{target} lines", "ratio"]
    headings += [f"{language} unknown" for language in languages]
    rows: list[Sequence[object]] = []
    suspects = []
    for name, state in splits.items():
        rates = [percent(rate, 3) for rate in state.unknown] if state.unknown else [None, None]
        lines = [f"{count:,}" for count in state.lines]
        rows.append((name, *lines, f"{state.median_ratio:.2f}", *rates))
        counts = (state.blank, state.identical, state.unusual, state.repeated)
        if any(counts):
            totals = (state.pairs, state.pairs, state.pairs, min(state.lines))
            shares = (percent(n / total, 2) for n, total in zip(counts, totals, strict=True))
            suspects.append((name, *map("{:,} ({})".format, counts, shares)))
    note = f"ratio: {source} / {target} length of the median pair; unknown: subwords"
    shown = [table(("split", *headings), rows, title="Text", note=note)]
    if suspects:
        headings = ["split", "blank side", "equal sides", "unusual length", "repeated"]
        note = (
            f"unusual length: {UNUSUAL:g} times longer or shorter than the median pair; "
            "repeated: pairs that occur before in train, or also in train"
        )
        shown.append(table(headings, suspects, title="Suspicious pairs", note=note))
    return shown


def problems(splits: Mapping[str, SplitState], languages: tuple[str, str]) -> Iterator[Problem]:
    """The problems of all splits."""
    for name, state in splits.items():
        source, target = state.lines
        if source != target:
            what = f"{source:,} {languages[0]} lines but {target:,} {languages[1]} lines"
            yield Problem(what, name, "create both files again from their common source")
        for count, total, limit, what, hint in (
            (state.blank, state.pairs, BLANK, "have a blank side",
             "check that the lines still correspond"),
            (state.identical, state.pairs, IDENTICAL, "have identical sides",
             "check whether one side was copied, and remove such pairs"),
            (state.unusual, state.pairs, UNUSUAL_PAIRS,
             f"are {UNUSUAL:g} times longer or shorter than the median pair",
             "check that the lines still correspond, or set text.clean.max_ratio"),
            (state.repeated * (not state.is_training), min(state.lines), REPEATED,
             "are in train too",
             "remove them from the training text: they inflate the scores"),
        ):  # fmt: skip
            if count > limit * total:
                yield Problem(f"{percent(count / total)} of the pairs {what}", name, hint)
        for language, rate in zip(languages, state.unknown or (), strict=False):
            if rate > UNKNOWN:
                what = f"{percent(rate)} of the {language} subwords are unknown"
                hint = "compare its encoding and tokenization with those of the training text"
                yield Problem(what, name, hint)
        yield from state.warnings
