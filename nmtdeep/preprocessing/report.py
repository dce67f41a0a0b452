"""What preprocessing did, so that nothing is lost in silence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from nmtdeep.tables import describe, table
from nmtdeep.units import percent

EXAMPLES = 5


@dataclass
class Reason:
    """How many pairs, and the line numbers of the first few."""

    count: int = 0
    examples: list[int] = field(default_factory=list)

    def add(self, line: int) -> None:
        """Count one more pair."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(line)

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{self.count:,} (line {', '.join(map(str, self.examples))}{more})"


@dataclass
class SplitReport:
    """One split: what came in, what was kept and what was not, or stands out."""

    read: int
    kept: int = 0
    reasons: dict[str, Reason] = field(default_factory=dict)
    repeated: int = 0  # train: pairs that occurred before; else: pairs that occur in train
    source_words: int = 0
    target_words: int = 0
    source_forgotten: int = 0  # of these words: rare ones that no count knows any more
    target_forgotten: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    source_unknown: int = 0
    target_unknown: int = 0

    def add_reasons(self, found: Iterable[tuple[int, str]]) -> None:
        """Note pairs by line number and reason."""
        for line, reason in found:
            self.reasons.setdefault(reason, Reason()).add(line)

    @property
    def unknown_rates(self) -> tuple[float, float]:
        """Share of `<unk>` among the subwords of source and target."""
        return (
            self.source_unknown / max(self.source_tokens, 1),
            self.target_unknown / max(self.target_tokens, 1),
        )


@dataclass
class PreprocessingReport:
    """Everything counted on the way; `show` prints it."""

    languages: tuple[str, str]
    splits: dict[str, SplitReport]
    merges: dict[str, int]
    vocabulary: dict[str, int]
    seconds: dict[str, float]
    fingerprint: str

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and names, for data.json; no times: equal text gives equal bytes."""
        return {name: value for name, value in asdict(self).items() if name != "seconds"}

    def show(self, console: Console) -> None:
        """Print the tables, then sizes and times."""
        for one in self.tables():
            console.print(one)
        console.print(describe(self._sizes()), markup=False, highlight=False, soft_wrap=True)

    def tables(self) -> list[RenderableType]:
        """A row per split: pairs and words, then subwords; and the pairs that stand out."""
        return [self._words(), self._subwords(), self._reasons()]

    def _words(self) -> Table:
        source, target = self.languages
        columns = ("read", "kept", "repeated*", f"{source} words", f"{target} words")
        rows = [
            (
                name,
                *map(_count, (one.read, one.kept, one.repeated)),
                *map(_count, (one.source_words, one.target_words)),
            )
            for name, one in self.splits.items()
        ]
        return table(
            {"split": "left", **dict.fromkeys(columns, "right")},
            rows,
            title="Pairs, and words in the pairs read",
            note="* kept, only counted: pairs that occur before in train, or also in train",
        )

    def _subwords(self) -> Table:
        """Subwords of the pairs that were kept; rare words only where some were not counted."""
        rare = any(one.source_forgotten or one.target_forgotten for one in self.splits.values())
        columns = ["subwords", "unknown"] + ["rare*"] * rare
        rows = []
        for name, one in self.splits.items():
            cells = [name]
            for tokens, rate, forgotten in zip(
                (one.source_tokens, one.target_tokens),
                one.unknown_rates,
                (one.source_forgotten, one.target_forgotten),
                strict=True,
            ):
                cells += [_count(tokens), percent(rate, 3)] + [_count(forgotten)] * rare
            rows.append(cells)
        headings = [f"{language} {column}" for language in self.languages for column in columns]
        return table(
            {"split": "left", **dict.fromkeys(headings, "right")},
            rows,
            title="Subwords in the pairs kept",
            note="* words that are not counted, because too many are different" if rare else "",
        )

    def _reasons(self) -> RenderableType:
        """Pairs that were dropped from train or would have been elsewhere, by split and reason."""
        rows = [
            (name, reason, "dropped" if name == "train" else "kept", str(found))
            for name, split in self.splits.items()
            for reason, found in sorted(split.reasons.items())
        ]
        if not rows:
            return " No pairs were dropped.\n"
        columns = dict.fromkeys(("split", "reason", "what happened", "pairs"), "left")
        return table(columns, rows, title="Dropped and unusual pairs")

    def _sizes(self) -> list[tuple[str, str]]:
        """Sizes, and the seconds of each kind of step over all splits, if not 0.0."""
        steps: dict[str, float] = {}
        for name, seconds in self.seconds.items():
            verb = next(
                (name.removesuffix(f" {one}") for one in self.splits if name.endswith(f" {one}")),
                name,
            )
            steps[verb] = steps.get(verb, 0.0) + seconds
        shown = {name: f"{seconds:.1f} s" for name, seconds in steps.items()}
        times = [f"{name} {said}" for name, said in shown.items() if said != "0.0 s"]
        return [
            *((f"BPE merges, {name}", _count(merges)) for name, merges in self.merges.items()),
            *((f"vocabulary, {name}", _count(size)) for name, size in self.vocabulary.items()),
            ("text pipeline", self.fingerprint[:16]),
            ("time", ", ".join([f"{sum(steps.values()):.1f} s", *times])),
        ]


def _count(number: int) -> str:
    return f"{number:,}"
