"""The state of parallel text, counted line by line: of plain files, or of a data directory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nmtdeep.config.text import Form
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import Problem, UserError
from nmtdeep.preprocessing.report import report_of
from nmtdeep.preprocessing.stages import pair_hash
from nmtdeep.preprocessing.warnings import Sample, warnings
from nmtdeep.text.files import read_lines
from nmtdeep.text.pairs import find_text

# A pair is unusual if its length ratio is this many times that of the median pair, or the inverse.
UNUSUAL = 3.0
# Pairs of a data directory's training text that are examined: their ids are converted to text.
DECODED = 100_000

Pair = tuple[str | None, str | None]


@dataclass
class SplitState:
    """Counts of one split.

    Attributes:
        lines: of each file.
        pairs: that were examined: those with both sides.
        blank: pairs with a blank side.
        identical: pairs with equal sides that are not blank.
        log_ratios: logarithm of source length over target length, of pairs that are not blank.
        warnings: about what the text should not have.
        unknown: share of the subwords that are not in the vocabulary, by side; None if the text was
            not preprocessed.
        repeated: pairs that occur before in train; in other splits, pairs that occur in train.
        hashes: eight bytes for each pair.
        is_training: whether it is a training corpus.
    """

    lines: tuple[int, int] = (0, 0)
    pairs: int = 0
    blank: int = 0
    identical: int = 0
    log_ratios: array[float] = field(default_factory=lambda: array("f"))
    warnings: list[Problem] = field(default_factory=list)
    unknown: tuple[float, float] | None = None
    repeated: int = 0
    hashes: bytearray = field(default_factory=bytearray)
    is_training: bool = False

    @property
    def median_ratio(self) -> float:
        """Source length over target length of the median pair; NaN without one."""
        return math.exp(self._median) if self.log_ratios else math.nan

    @property
    def unusual(self) -> int:
        """Pairs whose ratio is far from the median."""
        if not self.log_ratios:
            return 0
        distances = np.abs(np.array(self.log_ratios) - self._median)
        return int((distances > math.log(UNUSUAL)).sum())

    @property
    def _median(self) -> float:
        return float(np.quantile(self.log_ratios, 0.5, method="lower"))


def examine(
    pairs: Iterable[Pair], names: Sequence[str], languages: tuple[str, str], form: Form
) -> SplitState:
    """Count a split; a side that is None has ended before the other.

    Args:
        names, form: as of `warnings`.
    """
    state, sample = SplitState(), Sample()
    lines = [0, 0]
    for number, (source, target) in enumerate(pairs, 1):
        lines[0] += source is not None
        lines[1] += target is not None
        if source is None or target is None:
            continue
        sample.add(number, (source, target))
        state.pairs += 1
        state.hashes += pair_hash((source, target))
        stripped = source.strip(), target.strip()
        if all(stripped):
            state.identical += stripped[0] == stripped[1]
            state.log_ratios.append(math.log(len(stripped[0]) / len(stripped[1])))
        else:
            state.blank += 1
    state.lines = (lines[0], lines[1])
    state.warnings = list(warnings(sample, names, languages, form))
    return state


def examine_files(
    prefixes: Mapping[str, Path],
    training: Collection[str],
    languages: tuple[str, str],
    problems: list[Problem],
) -> dict[str, SplitState]:
    """Examine the text of each split, training corpora first.

    A split that cannot be read is omitted, and its problems are added to `problems`.
    """
    splits: dict[str, SplitState] = {}
    known = np.empty(0, np.uint64)
    for name, prefix in prefixes.items():
        try:
            text = find_text(prefix, languages, "error" if name in training else None)
            splits[name] = state = examine(text.pairs(), text.names, languages, "raw")
        except UserError as error:
            problems += error.problems
            continue
        hashes = np.frombuffer(state.hashes, np.uint64)
        state.repeated = int(np.isin(hashes, known).sum())
        if name in training:
            state.is_training = True
            before, known = len(known) + len(hashes), np.union1d(known, hashes)
            state.repeated = before - len(known)
    return splits


def examine_data(data: DataDirectory) -> dict[str, SplitState]:
    """Examine a data directory: its raw text, text of its training ids, its report.

    Raises:
        DataError: if one of its files is damaged.
    """
    report = report_of(data.path, data.index)
    splits = {}
    for name in data.splits:
        files = [str(data.path / f"{name}.{language}") for language in data.languages]
        is_training = name in data.training
        pairs = _decoded(data, name) if is_training else zip(*map(read_lines, files), strict=True)
        form = "tokenized" if is_training else data.pipeline.config.input
        splits[name] = state = examine(pairs, files, data.languages, form)
        state.is_training = is_training
        counts = report.splits[name]
        state.lines = (counts.read, counts.read)
        state.unknown = counts.unknown_rates
        state.repeated = counts.repeated
    return splits


def _decoded(data: DataDirectory, name: str) -> Iterator[Pair]:
    """The first pairs of a training corpus, as tokenized text."""
    corpus, pipeline = data.corpus(name), data.pipeline
    for number in range(min(len(corpus), DECODED)):
        source, target = (
            side.join(side.vocabulary.words(ids[number].tolist()), "tokenized")
            for side, ids in ((pipeline.source, corpus.source), (pipeline.target, corpus.target))
        )
        yield source, target
