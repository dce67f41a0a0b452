"""Splits to examine: plain parallel files, or a data directory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmtdeep.data.corpus import DataDirectory, MonolingualCorpus
from nmtdeep.data.index import TRAIN
from nmtdeep.doctor.languages import words
from nmtdeep.doctor.texts import SAMPLE, Letters, Pair, SplitState, examine
from nmtdeep.errors import UserError
from nmtdeep.inspection.data import report_of
from nmtdeep.preprocessing.counting import repetitions
from nmtdeep.text.files import find_side, read_lines
from nmtdeep.text.pipeline import Side
from nmtdeep.text.vocabulary import UNK

# Pairs of ids that are looked at together.
CHUNK = 1 << 16


def examine_files(
    prefixes: Mapping[str, Path], languages: tuple[str, str], wrong: list[str]
) -> dict[str, SplitState]:
    """Examine PREFIX.en and PREFIX.de of each split, the training text first.

    A split that cannot be read is left out, and why goes into `wrong`.
    """
    found: dict[str, SplitState] = {}
    letters = Letters()
    with tempfile.TemporaryDirectory(prefix="nmtdeep-") as folder:
        files: dict[str, Path] = {}
        for name, prefix in prefixes.items():
            files[name] = Path(folder) / f"{len(files)}.hashes"
            try:
                with files[name].open("wb") as hashes:
                    found[name] = examine(
                        pairs_of(prefix, languages),
                        letters=letters,
                        learn=name == TRAIN,
                        hashes=hashes,
                    )
            except UserError as error:
                wrong.append(str(error))
        others = [name for name in found if name != TRAIN]
        if TRAIN in found:
            counted = repetitions(files[TRAIN], [files[name] for name in others])
            for name, repeated in zip([TRAIN, *others], counted, strict=True):
                found[name].repeated = repeated
    return found


def pairs_of(prefix: Path, languages: tuple[str, str]) -> Iterator[Pair]:
    """Lines side by side; None on the side that ends before the other."""
    source, target = (find_side(prefix, language) for language in languages)
    return zip_longest(read_lines(source), read_lines(target))


def examine_data(path: Path) -> dict[str, SplitState]:
    """Examine a data directory: ids of the training text, the raw text of the others.

    Raises:
        DataError: if a file of it is damaged.
    """
    data = DataDirectory.open(path)
    report = report_of(path, data.index)
    found = {}
    for name in data.splits:
        if name == TRAIN:
            state = _of_ids(data)
        else:
            lines = (read_lines(path / f"{name}.{language}") for language in data.languages)
            state = examine(zip(*lines, strict=True), letters=Letters(), learn=True)
        counts = report.splits[name]
        state.source = state.target = counts.read
        if name == TRAIN:
            reasons = counts.reasons.items()
            state.empty = sum(one.count for reason, one in reasons if reason.endswith("is empty"))
        state.unknown = counts.unknown_rates
        state.repeated = counts.repeated
        found[name] = state
    return found


def _of_ids(data: DataDirectory) -> SplitState:
    state, corpus = SplitState(), data.corpus(TRAIN)
    sides = (data.pipeline.source, data.pipeline.target)
    translated = _translated(*sides)
    for first in range(0, len(corpus), CHUNK):
        last = min(first + CHUNK, len(corpus))
        lengths = [side.lengths_of(first, last) for side in (corpus.source, corpus.target)]
        # Without the end of sentence.
        state.add_lengths(np.maximum(lengths[0] - 1, 1), np.maximum(lengths[1] - 1, 1))
        same = np.flatnonzero(lengths[0] == lengths[1]) + first
        if len(same):
            source, target = _flat(corpus.source, same), _flat(corpus.target, same)
            starts = np.concatenate(([0], lengths[0][same - first].cumsum()[:-1]))
            equal = (translated[source] == target) & (source != UNK)
            state.identical += int(np.logical_and.reduceat(equal, starts).sum())
    for side, text in enumerate((corpus.source, corpus.target)):
        for number in range(min(SAMPLE, len(corpus))):
            state.words[side].update(words(_line(sides[side], text, number)))
    return state


def _line(side: Side, corpus: MonolingualCorpus, number: int) -> str:
    return side.join(side.vocabulary.words(corpus[number].tolist()), "tokenized")


def _translated(source: Side, target: Side) -> NDArray[np.int64]:
    """The target's id of each type of the source, by spelling; -1 if it has none."""
    ids = {token: id for id, token in enumerate(target.vocabulary.tokens)}
    return np.array([ids.get(token, -1) for token in source.vocabulary.tokens])


def _flat(corpus: MonolingualCorpus, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ids of the chosen sentences behind each other."""
    starts, lengths = corpus.places(chosen)
    shifts = starts - np.concatenate(([0], lengths.cumsum()[:-1]))
    places = np.arange(lengths.sum()) + np.repeat(shifts, lengths)
    return corpus.ids(places).astype(np.int64)
