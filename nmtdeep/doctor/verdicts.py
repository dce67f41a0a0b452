"""What of a text's state is wrong, and the tables of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from nmtdeep.data.index import TRAIN
from nmtdeep.doctor.languages import Profile, known_profile, misplaced, profile_of
from nmtdeep.doctor.texts import UNUSUAL, SplitState
from nmtdeep.tables import table
from nmtdeep.units import percent

# Largest shares that are not wrong.
EMPTY, IDENTICAL, UNUSUAL_PAIRS, UNKNOWN, REPEATED = 0.01, 0.10, 0.05, 0.01, 0.01


def tables(
    splits: Mapping[str, SplitState], languages: tuple[str, str], unknown: str
) -> list[Table]:
    """A row per split: lines and lengths; then pairs that may be wrong, if there are any.

    Args:
        unknown: what is unknown: letters or subwords.
    """
    source, target = languages
    headings = [f"{source} lines", f"{target} lines", "ratio"]
    headings += [f"{language} unknown" for language in languages]
    rows: list[Sequence[object]] = []
    for name, one in splits.items():
        rates = [percent(rate, 3) for rate in one.unknown] if one.unknown else [None, None]
        rows.append((name, f"{one.source:,}", f"{one.target:,}", f"{one.median_ratio:.2f}", *rates))
    found = [
        table(
            {"split": "left", **dict.fromkeys(headings, "right")},
            rows,
            title="Text",
            note=f"ratio: {source} / {target} length of the median pair; unknown: {unknown}",
        )
    ]
    suspects = {
        name: (one.empty, one.identical, one.unusual, one.repeated) for name, one in splits.items()
    }
    if any(any(counts) for counts in suspects.values()):
        columns = ("blank side", "equal sides", "unusual length", "repeated")
        rows = [
            (name, *(_share(count, splits[name]) for count in counts))
            for name, counts in suspects.items()
        ]
        note = (
            f"unusual length: {UNUSUAL:g} times longer or shorter than the median pair; "
            "repeated: pairs that occur before in train, or also in train"
        )
        found.append(
            table(
                {"split": "left", **dict.fromkeys(columns, "right")},
                rows,
                title="Pairs to look at",
                note=note,
            )
        )
    return found


def _share(count: int, state: SplitState) -> str:
    return f"{count:,} ({percent(count / max(state.pairs, 1), 2)})" if count else "0"


def problems(
    splits: Mapping[str, SplitState], languages: tuple[str, str], unknown: str
) -> list[str]:
    """A line with its hint for each thing that is wrong."""
    found = []
    for name, state in splits.items():
        if state.source != state.target:
            found.append(
                f"{name}: {state.source:,} {languages[0]} lines but {state.target:,} "
                f"{languages[1]} lines: make both files again from their common source"
            )
        found += [
            f"{name}: {percent(count / max(state.pairs, 1))} of the pairs {what}: {hint}"
            for count, limit, what, hint in _limits(name, state)
            if count > limit * state.pairs
        ]
        found += [
            f"{name}: {percent(rate)} of the {language} {unknown} are unknown: {_UNKNOWN_CURE}"
            for language, rate in zip(languages, state.unknown or (), strict=False)
            if rate > UNKNOWN
        ]
    return found + orders(splits, languages)


_UNKNOWN_CURE = "check its encoding and its tokenization against the training text's"


def _limits(name: str, state: SplitState) -> list[tuple[int, float, str, str]]:
    rows = [
        (state.empty, EMPTY, "have a blank side", "check that the lines still go together"),
        (
            state.identical,
            IDENTICAL,
            "have identical sides",
            "check whether one side was copied, and take such pairs out",
        ),
        (
            state.unusual,
            UNUSUAL_PAIRS,
            f"are {UNUSUAL:g} times longer or shorter than the median pair",
            "check that the lines still go together, or set text.clean.max_ratio",
        ),
    ]
    if name != TRAIN:
        hint = "take them out of the training text, or scores will flatter"
        rows.append((state.repeated, REPEATED, "are in train too", hint))
    return rows


def orders(splits: Mapping[str, SplitState], languages: tuple[str, str]) -> list[str]:
    """Sides that are in the other language, as far as frequent words tell.

    The training text is held against words that are known of the languages; the others against
    the training text's own frequent words, or where it is at fault itself against the known ones.
    """
    known = known_profile(*languages)
    learned: Profile | None = None
    found = []
    for name, state in splits.items():
        profile = learned if name != TRAIN and learned is not None else known
        wrong = misplaced(*state.words, profile) if profile else (False, False)
        if name == TRAIN and not any(wrong):
            learned = profile_of(*state.words)
        source, target = languages
        if all(wrong):
            found.append(
                f"{name}: the languages look swapped ({source} is {target}, {target} is "
                f"{source}): rename the files, or swap -s and -t"
            )
        elif any(wrong):
            mine, other = (source, target) if wrong[0] else (target, source)
            found.append(f"{name}: the {mine} side looks like {other}: check the file")
    return found
