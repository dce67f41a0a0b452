"""Report of a preprocessing: counts of everything that it dropped or changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.console import Console, RenderableType
from rich.table import Table

from nmtdeep import __version__, files
from nmtdeep.data.index import COPY, FORMAT, INDEX_FILE, TRAIN
from nmtdeep.errors import DataError
from nmtdeep.preprocessing.transforms import REPEATED
from nmtdeep.tables import describe, show, table
from nmtdeep.units import percent

EXAMPLES = 5
_NOT_STORED = ("seconds", "training", "wanted")


@dataclass
class Reason:
    """A number of pairs, and the line numbers of the first few."""

    count: int = 0
    examples: list[int] = field(default_factory=list)

    def add(self, line: int) -> None:
        """Count one more pair."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(line)

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.examples) else ""
        lines = "line" if self.count == 1 else "lines"
        return f"{self.count:,} ({lines} {', '.join(map(str, self.examples))}{more})"


def plus(one: tuple[int, int], other: Sequence[int]) -> tuple[int, int]:
    """The sums of two pairs of counts."""
    return one[0] + other[0], one[1] + other[1]


@dataclass
class SplitReport:
    """Counts of one split; those with two numbers are of source and target.

    Attributes:
        read: pairs; so is `kept`.
        reasons: pairs that were dropped from train, or would have been, by reason.
        repeated: pairs of train that occur before; pairs of another split that occur in train.
        words: of the pairs read.
        forgotten: of these words, rare ones that were not counted.
        tokens: subwords of the pairs kept.
        unknown: of these subwords, `<unk>`.
        kept_words: of the pairs kept.
    """

    read: int
    kept: int = 0
    reasons: dict[str, Reason] = field(default_factory=dict)
    repeated: int = 0
    words: tuple[int, int] = (0, 0)
    forgotten: tuple[int, int] = (0, 0)
    tokens: tuple[int, int] = (0, 0)
    unknown: tuple[int, int] = (0, 0)
    kept_words: tuple[int, int] = (0, 0)

    @property
    def unknown_rates(self) -> tuple[float, float]:
        """Share of `<unk>` among the subwords of source and target."""
        source, target = (max(tokens, 1) for tokens in self.tokens)
        return self.unknown[0] / source, self.unknown[1] / target


@dataclass
class PreprocessingReport:
    """Everything counted on the way; `show` prints it.

    Attributes:
        training: names of the training corpora among the splits.
        wanted: merges or pieces that were to be learned.
    """

    languages: tuple[str, str]
    splits: dict[str, SplitReport]
    merges: dict[str, int]
    vocabulary: dict[str, int]
    seconds: dict[str, float]
    fingerprint: str
    training: tuple[str, ...] = (TRAIN,)
    wanted: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and names, for data.json; no times: equal text has equal bytes."""
        values = asdict(self)
        return {name: values[name] for name in values if name not in _NOT_STORED}

    def show(self, console: Console | None = None) -> None:
        """Print the tables, then sizes and times."""
        show(*self.tables(), describe(self._sizes()), console=console)

    def tables(self) -> list[RenderableType]:
        """A row for each split: pairs and words, then subwords; and the unusual pairs."""
        return [self._words(), self._subwords(), self._reasons()]

    def _words(self) -> Table:
        source, target = self.languages
        columns = ("read", "kept", "repeated*", f"{source} words", f"{target} words")
        rows = [
            (name, *map("{:,}".format, (split.read, split.kept, split.repeated, *split.words)))
            for name, split in self.splits.items()
        ]
        dropped = any(REPEATED in split.reasons for split in self.splits.values())
        verb = "dropped from train" if dropped else "kept"
        return table(
            ("split", *columns),
            rows,
            title="Pairs, and words in the pairs read",
            note=f"* also found earlier in the training text; {verb}",
        )

    def _subwords(self) -> Table:
        """Subwords of the pairs that were kept; rare words only where some were not counted."""
        rare = any(any(split.forgotten) for split in self.splits.values())
        columns = ["subwords", "unknown", "rare*"] if rare else ["subwords", "unknown"]
        rows = []
        for name, split in self.splits.items():
            cells = [name]
            for side, rate in enumerate(split.unknown_rates):
                cells += [f"{split.tokens[side]:,}", percent(rate, 3)]
                if rare:
                    cells.append(f"{split.forgotten[side]:,}")
            rows.append(cells)
        headings = [f"{language} {column}" for language in self.languages for column in columns]
        return table(
            ("split", *headings),
            rows,
            title="Subwords in the pairs kept",
            note="* words that were not counted: there are too many different ones" if rare else "",
        )

    def _reasons(self) -> RenderableType:
        """Pairs that were dropped from train or would have been elsewhere, by split and reason."""
        rows = [
            (name, reason, "dropped" if name in self.training else "kept", str(pairs))
            for name, split in self.splits.items()
            for reason, pairs in sorted(split.reasons.items())
        ]
        if not rows:
            return " No pairs were dropped.\n"
        headings = ("split", "reason", "result", "pairs")
        return table(headings, rows, text=3, title="Dropped and unusual pairs")

    def _sizes(self) -> list[tuple[str, str]]:
        """Sizes, and the seconds of each kind of step over all splits, if not 0.0."""
        steps: dict[str, float] = {}
        for name, seconds in self.seconds.items():
            verb = name
            for split in self.splits:
                verb = verb.removesuffix(f" {split}")
            steps[verb] = steps.get(verb, 0.0) + seconds
        times = [f"{name} {seconds:.1f} s" for name, seconds in steps.items() if seconds >= 0.05]
        learned = {f"BPE merges, {name}": number for name, number in self.merges.items()}
        types = {f"vocabulary, {name}": number for name, number in self.vocabulary.items()}
        sizes = {name: f"{number:,}" for name, number in (learned | types).items()}
        for name, number in (learned or types).items():
            if number < self.wanted:
                sizes[name] += f" of {self.wanted:,}: the text is too small for more"
        return [
            *sizes.items(),
            ("text pipeline", self.fingerprint[:16]),
            ("time", ", ".join([f"{sum(steps.values()):.1f} s", *times])),
        ]


def write_index(directory: Path, report: PreprocessingReport, dtypes: Mapping[str, str]) -> None:
    """Write data.json and SHA256SUMS of a directory whose other files are there.

    Args:
        dtypes: of `source` and `target` ids.
    """
    training = list(report.training)
    index = {
        "format": FORMAT,
        "nmtdeep": __version__,
        "source": report.languages[0],
        "target": report.languages[1],
        "dtype": dtypes,
        "fingerprint": report.fingerprint,
        "splits": {name: {"pairs": split.kept} for name, split in report.splits.items()},
        **({"training": training} if training != [TRAIN] else {}),
        "report": report.to_json(),
    }
    content = json.dumps(index, indent=2, ensure_ascii=False)
    (directory / INDEX_FILE).write_text(content + "\n", encoding="utf-8")
    files.write_sums(directory)


def report_of(path: Path, index: dict[str, Any]) -> PreprocessingReport:
    """The counts in `index`, the data.json of data directory `path`.

    Raises:
        DataError: if data.json does not contain them.
    """
    try:
        values = {"seconds": {}, "training": index["training"], **index["report"]}
        return TypeAdapter(PreprocessingReport).validate_python(values)
    except (KeyError, TypeError, ValidationError) as error:
        raise DataError("broken (report)", where=path / INDEX_FILE, hint=COPY) from error
