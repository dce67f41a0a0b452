"""Splits to examine: plain parallel files, or a data directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

import numpy as np

from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import TRAIN
from nmtdeep.doctor.texts import Pair, SplitState, examine
from nmtdeep.errors import Problem, UserError
from nmtdeep.inspection import report_of
from nmtdeep.text.files import find_side, read_lines

# Pairs of a data directory's training text that are examined: their ids are converted to text.
DECODED = 100_000


def examine_files(
    prefixes: Mapping[str, Path], languages: tuple[str, str], problems: list[Problem]
) -> dict[str, SplitState]:
    """Examine PREFIX.en and PREFIX.de of each split.

    A split that cannot be read is omitted, and its problems are added to `problems`.
    """
    splits: dict[str, SplitState] = {}
    for name, prefix in prefixes.items():
        try:
            source, target = (find_side(prefix, language) for language in languages)
            splits[name] = examine(zip_longest(read_lines(source), read_lines(target)))
        except UserError as error:
            problems += error.problems
    if TRAIN in splits:
        train = np.unique(np.frombuffer(splits[TRAIN].hashes, np.uint64))
        for name, state in splits.items():
            hashes = np.frombuffer(state.hashes, np.uint64)
            state.repeated = int(np.isin(hashes, train).sum()) - (name == TRAIN) * len(train)
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
        pairs = _decoded(data) if name == TRAIN else zip(*map(read_lines, files), strict=True)
        splits[name] = state = examine(pairs)
        counts = report.splits[name]
        state.lines = (counts.read, counts.read)
        state.unknown = counts.unknown_rates
        state.repeated = counts.repeated
    return splits


def _decoded(data: DataDirectory) -> Iterator[Pair]:
    """The first pairs of the training text, as tokenized text."""
    corpus, pipeline = data.corpus(TRAIN), data.pipeline
    for number in range(min(len(corpus), DECODED)):
        source, target = (
            side.join(side.vocabulary.words(ids[number].tolist()), "tokenized")
            for side, ids in ((pipeline.source, corpus.source), (pipeline.target, corpus.target))
        )
        yield source, target
