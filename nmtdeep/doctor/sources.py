"""Splits to examine: plain parallel files, or a data directory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np

from nmtdeep.data.corpus import DataDirectory
from nmtdeep.doctor.texts import Pair, SplitState, examine
from nmtdeep.errors import Problem, UserError
from nmtdeep.preprocessing.report import report_of
from nmtdeep.text.files import read_lines
from nmtdeep.text.pairs import find_text

# Pairs of a data directory's training text that are examined: their ids are converted to text.
DECODED = 100_000


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
            splits[name] = state = examine(find_text(prefix, languages).pairs())
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
        files = (data.path / f"{name}.{language}" for language in data.languages)
        is_training = name in data.training
        pairs = _decoded(data, name) if is_training else zip(*map(read_lines, files), strict=True)
        splits[name] = state = examine(pairs)
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
