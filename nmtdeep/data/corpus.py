"""The corpus on disk: sentences of ids behind each other, memory-mapped, and where each starts.

`train.en.tokens` holds the ids of all sentences (uint16, or uint32 for a large vocabulary),
`train.en.offsets` the start of each sentence and the end of the last (int64); little-endian.
`data.json` says what is there and is written last: a directory without it is not complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from nmtdeep.errors import DataError
from nmtdeep.text.files import read_lines
from nmtdeep.text.pipeline import TextPipeline

INDEX_FILE = "data.json"
TEXT_DIRECTORY = "text"
RECIPE_FILE = "recipe.yaml"
FORMAT = 1
CURE = "run nmtdeep preprocess again (--overwrite)"

# Sentences that are looked through at a time.
CHUNK = 1 << 20

Ids = npt.NDArray[np.unsignedinteger[Any]]


class Longest(NamedTuple):
    """The pair with the longest side: its number, from 1, and the tokens of that side with EOS."""

    sentence: int = 0
    tokens: int = 0


def id_type(vocabulary_size: int) -> str:
    """The smallest id type that holds a vocabulary: uint16 up to 65,536 types, else uint32."""
    return "uint16" if vocabulary_size <= 1 << 16 else "uint32"


@dataclass(frozen=True)
class MonolingualCorpus:
    """Sentences of ids, each ending in EOS."""

    tokens: Ids
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        """Ids of one sentence, EOS last; a view of the file, not to be written to."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of each sentence, EOS counted."""
        return np.diff(self.offsets).astype(np.int32)

    @classmethod
    def open(cls, stem: Path, dtype: str) -> MonolingualCorpus:
        """Map STEM.tokens and STEM.offsets; DataError if they do not fit together."""
        tokens = _map(_tokens_file(stem), dtype)
        offsets = _map(_offsets_file(stem), "int64")
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(tokens):
            raise DataError(f"{stem}.tokens and {stem.name}.offsets do not fit together: {CURE}")
        return cls(tokens, offsets)


@dataclass(frozen=True)
class ParallelCorpus:
    """A split: as many source as target sentences, in order."""

    source: MonolingualCorpus
    target: MonolingualCorpus

    def __len__(self) -> int:
        return len(self.source)

    def longest(self) -> Longest:
        """Looks at every sentence; of several as long, the first."""
        found = Longest()
        for first in range(0, len(self), CHUNK):
            part = slice(first, first + CHUNK + 1)
            sides = [np.diff(side.offsets[part]) for side in (self.source, self.target)]
            found = longer(found, np.stack(sides), first)
        return found

    @classmethod
    def open(cls, directory: Path, split: str) -> ParallelCorpus:
        """A split of a data directory; DataError if anything is missing or truncated."""
        return DataDirectory.open(directory).corpus(split)


def longer(found: Longest, lengths: npt.NDArray[np.integer[Any]], first: int) -> Longest:
    """`found`, or of `lengths` `(2, sentences)`, which begin at number `first` from 0, the longest.

    The one that stands earlier if they are equally long.
    """
    if not lengths.size:
        return found
    sides = lengths.max(axis=0)
    place = int(sides.argmax())
    here = Longest(first + place + 1, int(sides[place]))
    return here if here.tokens > found.tokens else found


class CorpusWriter:
    """Writes sentences one after the other; use as a context manager."""

    def __init__(self, stem: Path, dtype: str) -> None:
        self.stem = stem
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.total = 0

    def __enter__(self) -> CorpusWriter:
        self._tokens: BinaryIO = _tokens_file(self.stem).open("wb")
        self._offsets: BinaryIO = _offsets_file(self.stem).open("wb")
        self._offsets.write(np.zeros(1, "<i8").tobytes())
        return self

    def write(self, sentences: Iterable[Sequence[int] | Ids]) -> None:
        """Append sentences of ids, each with its EOS."""
        arrays = [np.asarray(sentence, self.dtype) for sentence in sentences]
        if arrays:
            self.write_flat(np.concatenate(arrays), np.array([len(array) for array in arrays]))

    def write_flat(self, tokens: Ids, lengths: npt.NDArray[np.integer[Any]]) -> None:
        """Append sentences that already stand behind each other, by their lengths."""
        self._tokens.write(tokens.astype(self.dtype, copy=False).tobytes())
        ends = self.total + np.cumsum(lengths, dtype=np.int64)
        self._offsets.write(ends.astype("<i8").tobytes())
        self.total += len(tokens)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tokens.close()
        self._offsets.close()


@dataclass(frozen=True)
class DataDirectory:
    """What `nmtdeep preprocess` left: binary splits, raw evaluation text, the text pipeline."""

    path: Path
    index: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> DataDirectory:
        """Read data.json and check that every file is there in full length."""
        directory = cls(path, _read_index(path))
        for name, entry in directory.index["files"].items():
            _check_size(path / name, entry["bytes"])
        return directory

    @property
    def splits(self) -> list[str]:
        """Names of the splits: train, valid, then the tests."""
        return list(self.index["splits"])

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.index["source"], self.index["target"]

    @property
    def fingerprint(self) -> str:
        """`TextPipeline.fingerprint()` of the pipeline that made the ids."""
        return str(self.index["fingerprint"])

    def corpus(self, split: str) -> ParallelCorpus:
        """The ids of a split; DataError if there is no such split."""
        self._known(split)
        source, target = (
            MonolingualCorpus.open(self.path / f"{split}.{language}", self.index["dtype"][side])
            for side, language in zip(("source", "target"), self.languages, strict=True)
        )
        if len(source) != len(target):
            raise DataError(
                f"{self.path}: {split} has {len(source)} source but {len(target)} target "
                f"sentences: {CURE}"
            )
        return ParallelCorpus(source, target)

    def longest(self, split: str) -> Longest:
        """The longest pair of a split; older directories do not say, then all are looked at."""
        self._known(split)
        stored = self.index["splits"][split].get("longest")
        return Longest(**stored) if stored else self.corpus(split).longest()

    @cached_property
    def pipeline(self) -> TextPipeline:
        """The text pipeline; DataError if it is not the one that made the ids."""
        pipeline = TextPipeline.load(self.path / TEXT_DIRECTORY)
        if pipeline.fingerprint() != self.fingerprint:
            raise DataError(
                f"{self.path / TEXT_DIRECTORY}: the text pipeline was changed since the corpus was "
                f"made: {CURE}"
            )
        return pipeline

    def sources(self, split: str) -> list[str]:
        """Source lines of valid or a test as they came in."""
        return self._lines(split, self.languages[0])

    def references(self, split: str) -> list[str]:
        """Target lines of valid or a test, in the spelling that `join_target` gives.

        Compare with `join_target(tokens, pipeline.reference_form)`.
        """
        reference = self.pipeline.target.reference
        return [reference(line) for line in self._lines(split, self.languages[1])]

    def _lines(self, split: str, language: str) -> list[str]:
        self._known(split)
        return list(read_lines(self.path / f"{split}.{language}"))

    def _known(self, split: str) -> None:
        if split not in self.index["splits"]:
            raise DataError(
                f"{self.path} has no split {split!r}: it has {', '.join(self.splits)}; run nmtdeep "
                "preprocess with --test"
            )


def _read_index(path: Path) -> dict[str, Any]:
    file = path / INDEX_FILE
    if not file.is_file():
        state = "not a complete data directory" if path.is_dir() else "no such data directory"
        raise DataError(f"{path}: {state} (no {INDEX_FILE}): make one with nmtdeep preprocess")
    try:
        index: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        known = index["format"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{file}: broken: {CURE}") from None
    if known != FORMAT:
        raise DataError(
            f"{file}: format {known}, but this version of nmtdeep reads {FORMAT}: {CURE}"
        )
    return index


def _check_size(path: Path, expected: int) -> None:
    if not path.is_file():
        raise DataError(f"{path}: missing: copy the whole data directory again, or {CURE}")
    size = path.stat().st_size
    if size != expected:
        raise DataError(
            f"{path}: {size:,} bytes, but {expected:,} were written: the file is truncated or "
            f"changed; copy the whole data directory again, or {CURE}"
        )


def _map(path: Path, dtype: str) -> Any:
    kind = np.dtype(dtype).newbyteorder("<")
    if not path.is_file():
        raise DataError(f"{path}: missing: {CURE}")
    size = path.stat().st_size
    if size % kind.itemsize:
        raise DataError(f"{path}: {size:,} bytes are no whole number of {dtype}: {CURE}")
    # As a plain array: numpy's own class for maps makes each access slower.
    return np.memmap(path, kind, "r").view(np.ndarray) if size else np.empty(0, kind)


def _tokens_file(stem: Path) -> Path:
    return stem.parent / f"{stem.name}.tokens"


def _offsets_file(stem: Path) -> Path:
    return stem.parent / f"{stem.name}.offsets"
