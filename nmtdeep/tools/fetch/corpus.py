"""From addresses to files that `nmtdeep preprocess` reads."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from nmtdeep import files
from nmtdeep.errors import DataError
from nmtdeep.preprocessing.progress import ProgressBar
from nmtdeep.text.chinese import CHINESE, jieba
from nmtdeep.text.lines import read_lines
from nmtdeep.tools.fetch.archive import unpack
from nmtdeep.tools.fetch.catalog import Dataset, Output, SourceFile, split_member
from nmtdeep.tools.fetch.download import download
from nmtdeep.tools.fetch.readers import read_pairs
from nmtdeep.tools.fetch.steps import Casing, prepare

DOWNLOADS = "downloads"
_PARTIAL, _UNPACKED = ".partial", ".unpacked"
_ADVANCE = 1000


@dataclass(frozen=True)
class OutputCounts:
    """Pairs of one output: written, published, and dropped by reason."""

    name: str
    pairs: int
    expected: int | None
    dropped: dict[str, int]

    def lines(self) -> Iterator[str]:
        """The counts for the screen; the published one only if it is another."""
        yield f"{self.name}: {self.pairs:,} pairs"
        if self.expected not in (None, self.pairs):
            cause = "the data or a tool has another version, or a file is damaged"
            yield f"  published: {self.expected:,}: {cause}"
        yield from (f"  {count:,} dropped: {why}" for why, count in sorted(self.dropped.items()))


@dataclass(frozen=True)
class Fetch:
    """One corpus, from its addresses into a directory.

    Args:
        name: of the dataset.
        dataset: what to write.
        sources: every source that it reads, by name.
        out: receives the files, all of them at the end, and `downloads/`.
        folder: with archives that were downloaded already; those it lacks are downloaded.
        say: is called with each line that the user should see.
    """

    name: str
    dataset: Dataset
    sources: dict[str, SourceFile]
    out: Path
    folder: Path | None = None
    progress: ProgressBar = field(default_factory=lambda: ProgressBar("none"))
    say: Callable[[str], None] = lambda _: None

    def run(self) -> list[OutputCounts]:
        """Download what is missing, unpack, prepare, and write all files.

        Raises:
            UserError: if something cannot be downloaded or written.
            DataError: if an archive is not the one that was expected.
        """
        steps = {step for output in self.dataset.outputs.values() for step in output.steps}
        if CHINESE in self.dataset.languages and steps & {"tokenize", "tokenize_hyphens"}:
            jieba()  # fails before the download if the package is missing
        archives = {name: self._obtain(self.sources[name]) for name in self.dataset.sources}
        for folder in (_PARTIAL, _UNPACKED):
            shutil.rmtree(self.out / folder, ignore_errors=True)
            (self.out / folder).mkdir(parents=True)
        texts = self._unpack(archives)
        counts = [count for name in self.dataset.outputs for count in self._prepare(name, texts)]
        for path in sorted((self.out / _PARTIAL).iterdir()):
            path.replace(self.out / path.name)
        for folder in (_PARTIAL, _UNPACKED):
            shutil.rmtree(self.out / folder)
        return counts

    def plan(self) -> Iterator[str]:
        """Lines that name every archive with its license and its addresses."""
        yield f"{self.name}: {self.dataset.description}"
        for source in map(self.sources.__getitem__, self.dataset.sources):
            yield f"  {source.file}: {source.license}"
            yield from (f"    {url}" for url in source.urls)

    def commands(self) -> list[str]:
        """Shell commands that preprocess the files, one for each recipe."""
        lines = []
        for command in self.dataset.commands:
            several = len(self.dataset.commands) > 1
            data = f"data-{command.recipe.partition('/')[0]}" if several else "data"
            options = [("--train", command.train), ("--valid", command.valid)]
            options += [*(("--test", test) for test in command.tests), ("--out", data)]
            words = ["nmtdeep", "preprocess", command.recipe, *command.overrides]
            for option, name in options:
                words += [option, str(self.out / name)]
            lines.append(shlex.join(words))
        return lines

    def _obtain(self, source: SourceFile) -> Path:
        """The path of a source with the published checksum; it is downloaded if it is missing."""
        path = self.out / DOWNLOADS / source.file
        if self.folder and (self.folder / source.file).is_file():
            path = self.folder / source.file
        if path.is_file():
            _verify(path, source)
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        url = download(source.urls, partial, progress=self.progress)
        _verify(partial, source)
        partial.replace(path)
        checked = "MD5 as in sacreBLEU" if source.md5 else "no checksum is published"
        self.say(f"{path}: {path.stat().st_size:,} bytes from {url} ({checked})")
        return path

    def _unpack(self, archives: dict[str, Path]) -> dict[str, Path]:
        texts: dict[str, Path] = {}
        for name, archive in archives.items():
            members = [file for file in self.dataset.files if split_member(file)[0] == name]
            folder = self.out / _UNPACKED / name
            paths = {file: folder / str(number) for number, file in enumerate(members)}
            self.say(f"unpacking {archive.name}")
            unpack(archive, {split_member(file)[1]: path for file, path in paths.items()})
            texts |= paths
        return texts

    def _prepare(self, name: str, texts: dict[str, Path]) -> Iterator[OutputCounts]:
        """Write one output, and the one that is held out of it."""
        output, languages = self.dataset.outputs[name], self.dataset.languages
        held = output.hold_out
        names = [name, held.name] if held else [name]
        counts = [0] * len(names)
        dropped: Counter[str] = Counter()
        raw = (
            pair
            for part in output.parts
            for pair in read_pairs(part, [texts[file] for file in part.files])
        )
        pairs = prepare(raw, output, languages, self._casings(output), dropped)
        with ExitStack() as stack:
            writers = [[stack.enter_context(file) for file in self._open(name)] for name in names]
            advance = stack.enter_context(self.progress.step(f"prepare {name}", output.pairs or 0))
            for number, pair in enumerate(pairs, 1):
                is_held = held is not None and number % held.every == 0
                counts[is_held] += 1
                for writer, line in zip(writers[is_held], pair, strict=True):
                    writer.write(line + "\n")
                if number % _ADVANCE == 0:
                    advance(_ADVANCE)
        yield OutputCounts(name, counts[0], output.pairs, dict(dropped))
        if held:
            yield OutputCounts(held.name, counts[1], held.pairs, {})

    def _open(self, name: str) -> Iterator[IO[str]]:
        for language in self.dataset.languages:
            path = self.out / _PARTIAL / f"{name}.{language}"
            yield path.open("w", encoding="utf-8", newline="\n")

    def _casings(self, output: Output) -> list[Casing | None]:
        """Spellings of the training text, which is written first; Chinese has no case."""
        return [
            Casing.of(read_lines(self.out / _PARTIAL / f"train.{language}"))
            if "truecase" in output.steps and language != CHINESE
            else None
            for language in self.dataset.languages
        ]


def _verify(path: Path, source: SourceFile) -> None:
    if source.md5 and (md5 := files.digest(path, "md5")) != source.md5:
        hint = "delete it and run the same command again"
        raise DataError(f"its MD5 is {md5}, expected {source.md5}", where=path, hint=hint)
