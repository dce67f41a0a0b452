"""What of a text's state is wrong, and the table of all."""

from __future__ import annotations

from collections.abc import Mapping

from rich.markup import escape
from rich.table import Table

from nmtdeep.doctor.languages import Profile, known_profile, misplaced, profile_of
from nmtdeep.doctor.texts import UNUSUAL, SplitState
from nmtdeep.errors import printable
from nmtdeep.preprocessing.inputs import TRAIN

# Largest shares that are not wrong.
EMPTY, IDENTICAL, UNUSUAL_PAIRS, UNKNOWN, REPEATED = 0.01, 0.10, 0.05, 0.01, 0.01


def table(splits: Mapping[str, SplitState], languages: tuple[str, str], unknown: str) -> Table:
    """Counts of every split.

    Args:
        unknown: of what the share of unknown is.
    """
    found = Table(title="Text", title_justify="left")
    found.add_column("")
    for name in splits:
        found.add_column(escape(printable(name)), justify="right")
    states = splits.values()
    source, target = languages
    for name, counts in (
        (f"{source} lines", [one.source for one in states]),
        (f"{target} lines", [one.target for one in states]),
    ):
        found.add_row(name, *(f"{count:,}" for count in counts))
    found.add_row("a side is blank", *(_share(one.empty, one) for one in states))
    found.add_row("sides are identical", *(_share(one.identical, one) for one in states))
    found.add_row(
        f"{source} length : {target} length", *(f"{one.median_ratio:.2f}" for one in states)
    )
    found.add_row(f"{UNUSUAL:g} times off that", *(_share(one.unusual, one) for one in states))
    for side, language in enumerate(languages):
        rates = (one.unknown[side] if one.unknown else None for one in states)
        found.add_row(
            f"{language} unknown {unknown}",
            *("" if rate is None else f"{rate:.3%}" for rate in rates),
        )
    found.add_row("repeated*", *(_share(one.repeated, one) for one in states))
    found.caption = "* in train, pairs that stood there before; elsewhere, pairs that train has too"
    found.caption_justify = "left"
    return found


def _share(count: int, state: SplitState) -> str:
    return f"{count:,} ({count / max(state.pairs, 1):.2%})"


def problems(
    splits: Mapping[str, SplitState], languages: tuple[str, str], unknown: str
) -> list[str]:
    """A line with its cure for each thing that is wrong."""
    found = []
    for name, state in splits.items():
        if state.source != state.target:
            found.append(
                f"{name}: {state.source:,} {languages[0]} lines but {state.target:,} "
                f"{languages[1]} lines: make both files again from their common source"
            )
        found += [
            f"{name}: {count / max(state.pairs, 1):.1%} of the pairs {what}: {cure}"
            for count, limit, what, cure in _limits(name, state)
            if count > limit * state.pairs
        ]
        found += [
            f"{name}: {rate:.1%} of the {language} {unknown} are unknown: {_UNKNOWN_CURE}"
            for language, rate in zip(languages, state.unknown or (), strict=False)
            if rate > UNKNOWN
        ]
    return found + orders(splits, languages)


_UNKNOWN_CURE = "check its encoding and its tokenisation against the training text's"


def _limits(name: str, state: SplitState) -> list[tuple[int, float, str, str]]:
    rows = [
        (state.empty, EMPTY, "have a blank side", "look whether the lines still go together"),
        (
            state.identical,
            IDENTICAL,
            "have identical sides",
            "look whether one side was copied, and take such pairs out",
        ),
        (
            state.unusual,
            UNUSUAL_PAIRS,
            f"are {UNUSUAL:g} times longer or shorter than the others by comparison",
            "look whether the lines still go together, or set text.clean.max_ratio",
        ),
    ]
    if name != TRAIN:
        cure = "take them out of the training text, or scores will flatter"
        rows.append((state.repeated, REPEATED, "stand in train too", cure))
    return rows


def orders(splits: Mapping[str, SplitState], languages: tuple[str, str]) -> list[str]:
    """Sides that are in the other language, as far as frequent words tell.

    The training text is held against words that are known of the languages; the others against
    the training text's own frequent words, or where it is at fault itself against the known ones.
    """
    known = known_profile(*languages)
    learnt: Profile | None = None
    found = []
    for name, state in splits.items():
        profile = learnt if name != TRAIN and learnt is not None else known
        wrong = misplaced(*state.words, profile) if profile else (False, False)
        if name == TRAIN and not any(wrong):
            learnt = profile_of(*state.words)
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
