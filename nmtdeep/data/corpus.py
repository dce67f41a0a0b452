"""The corpus on disk: sentences of ids behind each other, memory-mapped, and where each starts.

`train.en.tokens` holds the ids of all sentences (uint16, or uint32 for a large vocabulary),
`train.en.offsets` the start of each sentence and the end of the last (int64); little-endian.
`data.json` says what is there and is written last: a directory without it is not complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmtdeep.data.checksums import Blocks, BlockWriter, sums_file
from nmtdeep.data.index import COPY, HINT, TEXT_DIRECTORY, check_files, read_index
from nmtdeep.errors import DataError
from nmtdeep.text.files import read_lines
from nmtdeep.text.pipeline import TextPipeline

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
    """Sentences of ids, each ending in EOS.

    Attributes:
        tokens, offsets: as they are mapped. What is read by the methods below is checked first.
        stem: name of the files, for messages.
        types: ids are smaller than this; None: not checked.
        blocks: checksums of tokens and offsets; directories of older versions have none.
    """

    tokens: Ids
    offsets: npt.NDArray[np.int64]
    stem: Path = Path("corpus")
    types: int | None = None
    blocks: tuple[Blocks, Blocks] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        """Ids of one sentence, EOS last; a view of the file, not to be written to."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        starts, lengths = self.places(np.array([index]))
        return self.ids(starts, lengths, slice(int(starts[0]), int(starts[0] + lengths[0])))

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of each sentence, EOS counted."""
        return self.lengths_of(0, len(self)).astype(np.int32)

    def lengths_of(self, first: int, last: int) -> npt.NDArray[np.int64]:
        """Tokens of sentences from `first` to `last`, the latter excluded, EOS counted.

        Raises:
            DataError: if the offsets were changed, or are none.
        """
        if first == last:
            return np.zeros(0, np.int64)
        self._check_offsets(np.array([first]), np.array([last]))
        offsets = self.offsets[first : last + 1]
        return self._lengths(offsets[:-1], offsets[1:])

    def places(
        self, indices: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where the named sentences start in `tokens`, and their lengths.

        Raises:
            DataError: if the offsets were changed, or are none.
        """
        self._check_offsets(indices, indices + 1)
        starts = self.offsets[indices]
        return starts, self._lengths(starts, self.offsets[indices + 1])

    def ids(
        self,
        starts: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        chosen: slice | npt.NDArray[np.int64],
    ) -> Ids:
        """`tokens[chosen]`, which are those of the sentences at these `places`.

        Raises:
            DataError: if they were changed, or are none of the vocabulary.
        """
        if self.blocks:
            width = self.tokens.itemsize
            self.blocks[0].check(starts * width, (starts + lengths) * width)
        found = self.tokens[chosen]
        if self.types is not None and found.max(initial=0) >= self.types:
            raise DataError(
                f"{_tokens_file(self.stem)}: id {found.max()} is none of the vocabulary's "
                f"{self.types}: {COPY}"
            )
        return found

    def _check_offsets(self, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> None:
        if self.blocks:
            width = self.offsets.itemsize
            self.blocks[1].check(first * width, (last + 1) * width)

    def _lengths(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        if starts.min() < 0 or ends.max() > len(self.tokens) or (ends <= starts).any():
            raise DataError(
                f"{_offsets_file(self.stem)}: does not say where sentences start: {COPY}"
            )
        return ends - starts

    @classmethod
    def open(cls, stem: Path, dtype: str, *, types: int | None = None) -> MonolingualCorpus:
        """Map STEM.tokens and STEM.offsets; DataError if they do not fit together."""
        files = _tokens_file(stem), _offsets_file(stem)
        tokens, offsets = _map(files[0], dtype), _map(files[1], "int64")
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(tokens):
            raise DataError(f"{files[0]} and {files[1]} do not fit together: {HINT}")
        blocks = None
        if all(sums_file(path).is_file() for path in files):
            first, second = (
                Blocks(path, mapped.view(np.uint8), hint=COPY)
                for path, mapped in zip(files, (tokens, offsets), strict=True)
            )
            blocks = first, second
        return cls(tokens, offsets, stem, types, blocks)


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
            last = min(first + CHUNK, len(self))
            sides = [side.lengths_of(first, last) for side in (self.source, self.target)]
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
        self._tokens = BlockWriter(_tokens_file(self.stem))
        self._offsets = BlockWriter(_offsets_file(self.stem))
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
        """Read data.json and check every file; large ones by length, and as they are read."""
        index = read_index(path)
        check_files(path, index)
        return cls(path, index)

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
        sides = {"source": self.pipeline.source, "target": self.pipeline.target}
        source, target = (
            MonolingualCorpus.open(
                self.path / f"{split}.{self.index[side]}",
                self.index["dtype"][side],
                types=len(pipeline.vocabulary),
            )
            for side, pipeline in sides.items()
        )
        if len(source) != len(target):
            raise DataError(
                f"{self.path}: {split} has {len(source)} source but {len(target)} target "
                f"sentences: {HINT}"
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
                f"made: {HINT}"
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


def _map(path: Path, dtype: str) -> Any:
    kind = np.dtype(dtype).newbyteorder("<")
    if not path.is_file():
        raise DataError(f"{path}: missing: {HINT}")
    size = path.stat().st_size
    if size % kind.itemsize:
        raise DataError(f"{path}: {size:,} bytes are no whole number of {dtype}: {HINT}")
    # As a plain array: numpy's own class for maps makes each access slower.
    return np.memmap(path, kind, "r").view(np.ndarray) if size else np.empty(0, kind)


def _tokens_file(stem: Path) -> Path:
    return stem.parent / f"{stem.name}.tokens"


def _offsets_file(stem: Path) -> Path:
    return stem.parent / f"{stem.name}.offsets"
