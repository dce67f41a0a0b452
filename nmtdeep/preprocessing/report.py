"""What preprocessing did, so that nothing is lost in silence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from nmtdeep.errors import printable

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
        """Print the tables."""
        console.print(self.render())

    def render(self) -> RenderableType:
        """Tables of splits, of dropped and conspicuous pairs, and of sizes and times."""
        return Group(self.table(), self.reasons(), self._sizes())

    def table(self) -> Table:
        """Pairs, words and subwords of each split."""
        table = Table(title="Splits", title_justify="left")
        table.add_column("")
        for name in self.splits:
            table.add_column(escape(printable(name)), justify="right")
        splits = self.splits.values()
        source, target = self.languages
        rows = [
            ("pairs read", [split.read for split in splits]),
            ("pairs kept", [split.kept for split in splits]),
            ("pairs repeated*", [split.repeated for split in splits]),
            (f"{source} words read", [split.source_words for split in splits]),
            (f"{target} words read", [split.target_words for split in splits]),
            (f"{source} subwords kept", [split.source_tokens for split in splits]),
            (f"{target} subwords kept", [split.target_tokens for split in splits]),
        ]
        if any(split.source_forgotten or split.target_forgotten for split in splits):
            rows += [
                (f"{source} rare words not counted", [split.source_forgotten for split in splits]),
                (f"{target} rare words not counted", [split.target_forgotten for split in splits]),
            ]
        for name, numbers in rows:
            table.add_row(name, *(f"{number:,}" for number in numbers))
        for side, language in enumerate(self.languages):
            rates = (f"{100 * split.unknown_rates[side]:.3f} %" for split in splits)
            table.add_row(f"{language} unknown subwords", *rates)
        table.caption = (
            "* kept, only counted: in train, pairs that stood there before; elsewhere, pairs that "
            "train has too"
        )
        table.caption_justify = "left"
        return table

    def reasons(self) -> Table:
        """Pairs dropped or conspicuous, by split and reason."""
        table = Table(title="Pairs dropped or conspicuous", title_justify="left")
        for name in ("split", "reason", "what happened", "pairs"):
            table.add_column(name)
        for name, split in self.splits.items():
            dropped = "dropped" if name == "train" else "kept"
            for reason, found in sorted(split.reasons.items()):
                row = (name, reason, dropped, str(found))
                table.add_row(*(escape(printable(cell)) for cell in row))
        if not table.row_count:
            table.add_row("all", "none", "every pair kept", "0")
        return table

    def _sizes(self) -> Table:
        table = Table(title="Sizes and times", title_justify="left")
        table.add_column("what")
        table.add_column("how much", justify="right")
        for name, merges in self.merges.items():
            table.add_row(f"BPE merges, {name}", f"{merges:,}")
        for name, size in self.vocabulary.items():
            table.add_row(f"vocabulary, {name}", f"{size:,}")
        for name, seconds in self.seconds.items():
            table.add_row(name, f"{seconds:.1f} s")
        table.add_row("all steps", f"{sum(self.seconds.values()):.1f} s")
        table.add_row("text pipeline", self.fingerprint[:16])
        return table
