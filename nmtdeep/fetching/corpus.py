"""From addresses to files that `nmtdeep preprocess` takes."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from nmtdeep import __version__, files
from nmtdeep.data.parallel import chunks, ordered_map
from nmtdeep.errors import DataError, UserError
from nmtdeep.fetching.archive import unpack
from nmtdeep.fetching.catalog import Command, Dataset, Output, Source, split_place
from nmtdeep.fetching.download import Patience, Say, download
from nmtdeep.fetching.readers import RawPair, pairs
from nmtdeep.fetching.steps import Casing, Prepare, check_available
from nmtdeep.preprocessing.progress import Progress
from nmtdeep.preprocessing.stages import Pair
from nmtdeep.text.chinese import CHINESE
from nmtdeep.text.files import read_lines

RECORD = "fetch.json"
DOWNLOADS = "downloads"
_PARTIAL, _UNPACKED = ".partial", ".unpacked"
_CHUNK = 2000
# Steps that are worth more processes than this one.
_SLOW = frozenset({"normalize", "tokenize", "tokenize_hyphens", "truecase"})


@dataclass
class Made:
    """What became of one output: pairs written, pairs expected, pairs left out by reason."""

    name: str
    pairs: int
    expected: int | None
    dropped: dict[str, int]


@dataclass(frozen=True)
class Fetch:
    """One corpus on its way into a folder.

    Args:
        name: of the dataset.
        dataset: what to make.
        sources: every source that it reads, by name.
        out: gets the files, `downloads/` and at the very end `fetch.json`.
        folder: with archives that were downloaded already; those it lacks are downloaded.
        workers: processes that prepare.
        say: is given each line that the user should see.
    """

    name: str
    dataset: Dataset
    sources: dict[str, Source]
    out: Path
    folder: Path | None = None
    workers: int = 1
    progress: Progress = field(default_factory=lambda: Progress("none"))
    patience: Patience = field(default_factory=Patience)
    say: Say = lambda _: None

    def run(self) -> list[Made]:
        """Download, unpack, prepare; what is done is not done again.

        Raises:
            UserError: if something cannot be downloaded, or `out` holds another corpus.
            DataError: if an archive is not what it should be.
        """
        done = self.done()
        if done is not None:
            self.say(f"{self.out}: {self.name} is there already: nothing to do")
            return done
        steps = [step for output in self.dataset.outputs.values() for step in output.steps]
        check_available(self.dataset.languages, steps)
        archives = {name: self._obtain(self.sources[name]) for name in self.dataset.sources}
        unpacked = self._unpack(archives)
        partial = self.out / _PARTIAL
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        made = [one for name in self.dataset.outputs for one in self._prepare(name, unpacked)]
        for path in sorted(partial.iterdir()):
            path.replace(self.out / path.name)
        self._record(made, archives)
        shutil.rmtree(partial)
        shutil.rmtree(self.out / _UNPACKED)
        return made

    def commands(self) -> list[str]:
        """Lines for a shell: `nmtdeep preprocess` with what was made."""
        return [shlex.join(self._words(command)) for command in self.dataset.commands]

    def _words(self, command: Command) -> list[str]:
        words = ["nmtdeep", "preprocess", command.recipe, *command.overrides]
        words += [
            "--train",
            str(self.out / command.train),
            "--valid",
            str(self.out / command.valid),
        ]
        for test in command.tests:
            words += ["--test", str(self.out / test)]
        several = len(self.dataset.commands) > 1
        data = f"data-{command.recipe.partition('/')[0]}" if several else "data"
        return [*words, "--out", str(self.out / data)]

    def done(self) -> list[Made] | None:
        """What an earlier run made, if it came to its end.

        Raises:
            UserError: if `out` holds another corpus, or not all of this one.
        """
        path = self.out / RECORD
        if not path.exists():
            return None
        hint = f"delete {path} and run the same command again"
        record = files.read_json(path, hint=hint)
        if record.get("dataset") != self.name:
            raise UserError(
                f"{self.out} holds {record.get('dataset')}: choose another -o for {self.name}"
            )
        try:
            made = [Made(**one) for one in record["files"]]
        except (KeyError, TypeError):
            raise DataError(f"{path}: not a record of this version: {hint}") from None
        for one in made:
            for language in self.dataset.languages:
                file = self.out / f"{one.name}.{language}"
                if not file.is_file():
                    raise DataError(f"{file}: missing: {hint}")
        return made

    def _obtain(self, source: Source) -> Path:
        """Where a source lies, its checksum compared; it is downloaded if it is nowhere."""
        if self.folder is not None and (self.folder / source.file).is_file():
            path = self.folder / source.file
            self.say(f"{path}: found")
            _check(path, source)
            return path
        path = self.out / DOWNLOADS / source.file
        if path.is_file():
            _check(path, source)
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        url = download(
            source.urls, path, progress=self.progress, patience=self.patience, say=self.say
        )
        try:
            _check(path, source)
        except DataError:
            path.unlink()  # nothing that is wrong stays to be found the next time
            raise
        _sum_file(path).write_text(f"{files.digest(path)}  {path.name}\n", encoding="utf-8")
        checked = "MD5 as sacreBLEU knows it" if source.md5 else "no checksum is known; recorded"
        self.say(f"{path}: {path.stat().st_size:,} bytes from {url} ({checked})")
        return path

    def _unpack(self, archives: dict[str, Path]) -> dict[str, Path]:
        """Every place of the dataset as a plain file."""
        root = self.out / _UNPACKED
        shutil.rmtree(root, ignore_errors=True)
        files: dict[str, Path] = {}
        for name, archive in archives.items():
            members = [place for place in self.dataset.places if split_place(place)[0] == name]
            if archive.suffix not in (".gz", ".tgz", ".tar"):
                raise DataError(f"{archive}: neither .gz nor .tgz nor .tar")
            here = {place: root / name / str(number) for number, place in enumerate(members)}
            self.say(f"unpacking {archive.name}")
            unpack(archive, {split_place(place)[1]: path for place, path in here.items()})
            files |= here
        return files

    def _prepare(self, name: str, unpacked: dict[str, Path]) -> Iterator[Made]:
        """Write one output, and what is held out of it."""
        output = self.dataset.outputs[name]
        held = output.hold_out
        counts = Counter({name: 0})
        dropped: Counter[str] = Counter()
        prepare = Prepare(self.dataset.languages, output.steps, output.clean, self._casings(output))
        with ExitStack() as stack:
            writers = {
                one: stack.enter_context(_Writer(self.out / _PARTIAL / one, self.dataset.languages))
                for one in [name, *([held.name] if held else [])]
            }
            advance = stack.enter_context(self.progress.step(f"prepare {name}", output.pairs or 0))
            workers = self.workers if _SLOW & set(output.steps) else 1
            kept = 0
            for result in ordered_map(
                prepare, chunks(_read(output, unpacked), _CHUNK), workers=workers
            ):
                dropped += result.dropped
                for pair in result.pairs:
                    kept += 1
                    to = held.name if held and kept % held.every == 0 else name
                    writers[to].write(pair)
                    counts[to] += 1
                advance(len(result.pairs) + result.dropped.total())
        yield Made(name, counts[name], output.pairs, dict(dropped))
        if held:
            yield Made(held.name, counts[held.name], held.pairs, {})

    def _casings(self, output: Output) -> tuple[Casing | None, Casing | None]:
        """Spellings of the training text, which is made first; Chinese has no case."""
        if "truecase" not in output.steps:
            return None, None
        source, target = (
            None
            if language == CHINESE
            else Casing.of(read_lines(self.out / _PARTIAL / f"train.{language}"))
            for language in self.dataset.languages
        )
        return source, target

    def _record(self, made: list[Made], archives: dict[str, Path]) -> None:
        record = {
            "dataset": self.name,
            "nmtdeep": __version__,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "sources": {
                name: {"file": str(path), "bytes": path.stat().st_size, "sha256": _sum(path)}
                for name, path in archives.items()
            },
            "files": [vars(one) for one in made],
        }
        text = json.dumps(files.sealed(record), indent=1, ensure_ascii=False)
        beside = self.out / f".{RECORD}"
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(self.out / RECORD)


class _Writer:
    """Two files, a line of each pair to each of them."""

    def __init__(self, prefix: Path, languages: tuple[str, str]) -> None:
        self._paths = [prefix.parent / f"{prefix.name}.{language}" for language in languages]

    def __enter__(self) -> _Writer:
        self._source, self._target = (
            path.open("w", encoding="utf-8", newline="\n") for path in self._paths
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._target.close()

    def write(self, pair: Pair) -> None:
        self._source.write(pair[0] + "\n")
        self._target.write(pair[1] + "\n")


def _read(output: Output, unpacked: dict[str, Path]) -> Iterator[RawPair]:
    for part in output.parts:
        yield from pairs(part, [unpacked[place] for place in part.files])


def _sum_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _sum(path: Path) -> str:
    """The SHA-256 that stands beside a download, or that of the file."""
    beside = _sum_file(path)
    return beside.read_text(encoding="utf-8")[:64] if beside.is_file() else files.digest(path)


def _check(path: Path, source: Source) -> None:
    """Compare with the published checksum, or else with what the first download recorded."""
    if source.md5:
        with path.open("rb") as stream:
            found, wanted = hashlib.file_digest(stream, "md5").hexdigest(), source.md5
    elif _sum_file(path).is_file():
        found, wanted = files.digest(path), _sum(path)
    else:
        return
    if found != wanted:
        raise DataError(
            f"{path}: its checksum is {found} and should be {wanted}: delete it and run the same "
            "command again"
        )
