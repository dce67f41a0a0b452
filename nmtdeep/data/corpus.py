"""The corpus on disk: the ids of all sentences in a row, memory-mapped, and where each starts.

`train.en.tokens` holds the ids of all sentences (uint16, or uint32 for a large vocabulary),
`train.en.offsets` the start of each sentence and the end of the last (int64); little-endian.
`data.json` describes the directory.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from nmtdeep import files
from nmtdeep.data.index import COPY, HINT, TEXT_DIRECTORY, VALID, check_files, read_index
from nmtdeep.errors import DataError
from nmtdeep.text.lines import read_lines
from nmtdeep.text.pipeline import TextPipeline

Ids = npt.NDArray[np.unsignedinteger[Any]]
Lengths = npt.NDArray[np.integer[Any]]
Flat = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
Chosen = slice | npt.NDArray[np.int64]
BLOCK = 1 << 20  # sentences whose lengths are read at once
OPEN_FILES = 1 << 16


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
        tokens, offsets: as they are mapped. The methods below check what they read.
        stem: name of the files, for messages.
        types: ids are smaller than this; None: not checked.
        most: longer sentences end, without EOS, after so many tokens; None: all are whole.
    """

    tokens: Ids
    offsets: npt.NDArray[np.int64]
    stem: Path = Path("corpus")
    types: int | None = None
    most: int | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        """Ids of one sentence, EOS last; a view of the file, not to be written to."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        (start,), (length,) = self.places(slice(index, index + 1))
        return self.ids(slice(int(start), int(start + length)))

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of each sentence, EOS counted."""
        return self.places(slice(None))[1].astype(np.int32)

    def places(self, chosen: Chosen) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The starts of these sentences in `tokens`, and their lengths, EOS counted.

        Raises:
            DataError: if the offsets cannot be right.
        """
        starts, ends = self.offsets[:-1][chosen], self.offsets[1:][chosen]
        inside = starts.min(initial=0) >= 0 and ends.max(initial=0) <= len(self.tokens)
        if not inside or (ends <= starts).any():
            raise DataError(
                "these offsets are not the starts of sentences",
                where=_file(self.stem, "offsets"),
                hint=COPY,
            )
        return starts, np.minimum(ends - starts, self.most or len(self.tokens))

    def ids(self, chosen: Chosen) -> Ids:
        """`tokens[chosen]`.

        Raises:
            DataError: if an id is outside the vocabulary.
        """
        ids = self.tokens[chosen]
        if self.types is not None and ids.max(initial=0) >= self.types:
            raise DataError(
                f"token id {ids.max()} is outside the vocabulary of {self.types} types",
                where=_file(self.stem, "tokens"),
                hint=COPY,
            )
        return ids

    def read(self, indices: npt.NDArray[np.int64]) -> Flat:
        """The named sentences, one after the other, and their lengths."""
        starts, lengths = self.places(indices)
        firsts = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        return self.ids(firsts + np.arange(len(firsts))).astype(np.int64), lengths

    @classmethod
    def open(cls, stem: Path, dtype: str, *, types: int | None = None) -> MonolingualCorpus:
        """Map STEM.tokens and STEM.offsets; DataError if they do not fit together."""
        tokens, offsets = _map(_file(stem, "tokens"), dtype), _map(_file(stem, "offsets"), "int64")
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(tokens):
            raise DataError(
                f"does not fit {stem.name}.tokens", where=_file(stem, "offsets"), hint=HINT
            )
        return cls(tokens, offsets, stem, types)


@dataclass(frozen=True)
class ParallelCorpus:
    """A split: as many source as target sentences, in order."""

    source: MonolingualCorpus
    target: MonolingualCorpus

    def __len__(self) -> int:
        return len(self.source)

    def longest(self) -> Longest:
        """The pair with the longest side; the first of them if several are as long."""
        longest = Longest()
        for first in range(0, len(self), BLOCK):
            block = slice(first, first + BLOCK)
            lengths = np.maximum(self.source.places(block)[1], self.target.places(block)[1])
            place = int(lengths.argmax())
            if lengths[place] > longest.tokens:
                longest = Longest(first + place + 1, int(lengths[place]))
        return longest


@contextmanager
def corpus_writer(stem: Path, dtype: str) -> Iterator[Callable[[Ids, Lengths], None]]:
    """A function that appends sentences to STEM.tokens and STEM.offsets.

    It takes their ids in a row, each sentence with its EOS, and their lengths.
    """
    kind, total = np.dtype(dtype).newbyteorder("<"), 0
    with _file(stem, "tokens").open("wb") as tokens, _file(stem, "offsets").open("wb") as offsets:
        offsets.write(np.zeros(1, "<i8").tobytes())

        def write(ids: Ids, lengths: Lengths) -> None:
            nonlocal total
            tokens.write(ids.astype(kind, copy=False).tobytes())
            ends = total + np.cumsum(lengths, dtype=np.int64)
            offsets.write(ends.astype("<i8").tobytes())
            total += len(ids)

        yield write


@dataclass(frozen=True)
class DataDirectory:
    """A directory from `nmtdeep preprocess`: ids of each split, evaluation text, text pipeline."""

    path: Path
    index: dict[str, Any]
    _mapped: dict[str, ParallelCorpus] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, path: Path, *, verify: bool = True) -> DataDirectory:
        """Read data.json and compare every file with its checksum.

        Args:
            verify: False spares the token and offset files, which may be larger than the memory.

        Raises:
            DataError: naming the first file that is damaged.
        """
        index = read_index(path)
        check_files(path, index, verify=verify)
        _allow_open_files()
        return cls(path, index)

    @property
    def splits(self) -> list[str]:
        """Names of the splits: the training corpora, valid, then the tests."""
        return list(self.index["splits"])

    @property
    def training(self) -> list[str]:
        """Names of the training corpora."""
        return list(self.index["training"])

    @property
    def held_out(self) -> list[str]:
        """Names of the other splits."""
        return [split for split in self.splits if split not in self.training]

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.index["source"], self.index["target"]

    @property
    def fingerprint(self) -> str:
        """`TextPipeline.fingerprint()` of the pipeline that made the ids."""
        return str(self.index["fingerprint"])

    @cached_property
    def digest(self) -> str:
        """Of the checksums of the text that is trained on or validates."""
        sums, stems = files.read_sums(self.path, hint=COPY), [*self.training, VALID]
        names = [f"{stem}.{language}{end}" for stem in stems for language in self.languages
                 for end in (".tokens", ".offsets", "")]  # fmt: skip
        known = "\n".join(sums.get(name, "") for name in names)
        return hashlib.sha256(known.encode()).hexdigest()

    def verify(self) -> None:
        """Compare every file with its checksum; DataError names the first that is damaged."""
        check_files(self.path, self.index, verify=True)

    def corpus(self, split: str) -> ParallelCorpus:
        """The ids of a split, mapped once; DataError if there is no such split."""
        if split in self._mapped:
            return self._mapped[split]
        if split not in self.index["splits"]:
            raise DataError(
                f"no split {split!r}, only {', '.join(self.splits)}",
                where=self.path,
                hint="run nmtdeep preprocess with --test",
            )
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
            what = f"{split} has {len(source)} source but {len(target)} target sentences"
            raise DataError(what, where=self.path, hint=HINT)
        self._mapped[split] = ParallelCorpus(source, target)
        return self._mapped[split]

    @cached_property
    def pipeline(self) -> TextPipeline:
        """The text pipeline; DataError if the ids were made with another."""
        pipeline = TextPipeline.load(self.path / TEXT_DIRECTORY)
        if pipeline.fingerprint() != self.fingerprint:
            what = "not the text pipeline that the corpus was made with"
            raise DataError(what, where=self.path / TEXT_DIRECTORY, hint=HINT)
        return pipeline

    def sources(self, split: str) -> list[str]:
        """Source lines of valid or a test as they came in."""
        return list(read_lines(self.path / f"{split}.{self.languages[0]}"))

    def references(self, split: str) -> list[str]:
        """Target lines of valid or a test, in the spelling of the pipeline.

        Compare with `pipeline.target.join(tokens, pipeline.reference_form)`.
        """
        lines = read_lines(self.path / f"{split}.{self.languages[1]}")
        return list(map(self.pipeline.target.reference, lines))


def opened(data: Path | DataDirectory) -> DataDirectory:
    """The data directory, opened without its token files' checksums if it is not open yet."""
    return DataDirectory.open(data, verify=False) if isinstance(data, Path) else data


def _allow_open_files() -> None:
    """Let the process map so many files, as far as it may: there can be hundreds of corpora."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _map(path: Path, dtype: str) -> Any:
    kind = np.dtype(dtype).newbyteorder("<")
    if not path.is_file():
        raise DataError("missing", where=path, hint=HINT)
    size = path.stat().st_size
    if size % kind.itemsize:
        raise DataError(f"{size:,} bytes are not a whole number of {dtype}", where=path, hint=HINT)
    return np.asarray(np.memmap(path, kind, "r")) if size else np.empty(0, kind)


def _file(stem: Path, kind: Literal["tokens", "offsets"]) -> Path:
    return stem.parent / f"{stem.name}.{kind}"
